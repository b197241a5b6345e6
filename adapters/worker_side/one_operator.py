"""Operators as modules of tensors only, one or many at once, for stacks that export or compile."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch

from day0_worker.stack import StackError


class OneOperator(torch.nn.Module):
    """Calls one operator; its tensor arguments are the inputs, everything else is part of the module.

    Args:
        operator: an overload.
        args: positional arguments.
        kwargs: keyword arguments.

    Attributes:
        inputs: the distinct tensors among the arguments.
        signature: text that is the same for calls that differ in the tensors' values only.
    """

    def __init__(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._operator = operator
        self.inputs: List[torch.Tensor] = []
        places: Dict[int, int] = {}
        self._arguments = _lift([list(args), dict(kwargs)], self.inputs, places)
        layouts = [(str(tensor.dtype), tensor.shape, tensor.stride()) for tensor in self.inputs]
        self.signature = f"{operator} {self._arguments} {layouts}"
        # From the schema and not from a run: an exporter undoes what a forward writes to the module.
        returns = operator._schema.returns
        self._single = len(returns) == 1 and str(returns[0].type) == "Tensor"

    def forward(self, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """See the class."""
        # A clone, so that an operator in place does not change an input of the graph.
        args, kwargs = _lower(self._arguments, [tensor.clone() for tensor in tensors])
        value = self._operator(*args, **kwargs)
        return (value,) if isinstance(value, torch.Tensor) else tuple(value)

    def result(self, outputs: Sequence[torch.Tensor]) -> Any:
        """What the operator would have returned."""
        return outputs[0] if self._single else tuple(outputs)


class ManyOperators(torch.nn.Module):
    """Calls several operators that do not depend on each other; their tensor arguments are the inputs.

    Args:
        operators: in the order in which they are called.

    Attributes:
        inputs: of all of them, in order.
    """

    def __init__(self, operators: Sequence[OneOperator]) -> None:
        super().__init__()
        self._operators = list(operators)
        self._taken = [len(one.inputs) for one in operators]
        # An object of its own, since tracers undo changes of a module.
        self._traced = _Traced()
        self.inputs: List[torch.Tensor] = [tensor for one in operators for tensor in one.inputs]

    def forward(self, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """See the class; the outputs are those of all operators, in order."""
        outputs: List[torch.Tensor] = []
        counts: List[int] = []
        place = 0
        for one, count in zip(self._operators, self._taken):  # noqa: B905  # Python 3.9 has no strict
            given = one(*tensors[place : place + count])
            outputs += given
            counts.append(len(given))
            place += count
        self._traced.counts = counts
        return tuple(outputs)

    def results(self, outputs: Sequence[torch.Tensor]) -> List[Any]:
        """What each operator would have returned.

        Args:
            outputs: of the graph that was made of this module.

        Raises:
            StackError: it gave another number of outputs than its operators have.
        """
        if sum(self._traced.counts) != len(outputs):
            raise StackError(
                f"a graph of {len(self._taken)} operators gave {len(outputs)} outputs, "
                f"not {sum(self._traced.counts)}"
            )
        values: List[Any] = []
        place = 0
        for one, count in zip(self._operators, self._traced.counts):  # noqa: B905  # Python 3.9 has no strict
            values.append(one.result(outputs[place : place + count]))
            place += count
        return values


class _Traced:
    def __init__(self) -> None:
        self.counts: List[int] = []


class _Place:
    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"<{self.index}>"


def _lift(value: Any, found: List[torch.Tensor], places: Dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        if id(value) not in places:
            places[id(value)] = len(found)
            found.append(value)
        return _Place(places[id(value)])
    if isinstance(value, dict):
        return {key: _lift(item, found, places) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_lift(item, found, places) for item in value)
    return value


def _lower(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.index]
    if isinstance(value, dict):
        return {key: _lower(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_lower(item, tensors) for item in value)
    return value

"""Parameters made of stored tensors, exact and in the target's dtypes, each read and dequantised once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from day0_worker.stack import StackError
from day0_worker.weights import described, evaluate, evaluate_into

from ..base.errors import CheckpointError
from .buffers import Buffers
from .raw_tensors import RawTensors, located, remote_keys
from .spool import Layout, Region
from .weights import is_leaf


class Parameters:
    """Some parameters of one node; those from afar are on their way from the beginning.

    Args:
        what: how errors name them.
        expressions: parameter -> expression, its leaves placed by `RawTensors.leaf`.
        dtypes: parameter -> in which the target's model holds it; as stored where there is none.
        raw: that reads.
        buffers: for what is made here.
        region: gives the file for what a worker is to map.
        chosen: parameter -> rows of the first dimension that are wanted, where the expression gives more.
        keep: whether an exact parameter, once made, stays.
    """

    def __init__(
        self,
        what: str,
        expressions: Mapping[str, Any],
        dtypes: Mapping[str, torch.dtype],
        raw: RawTensors,
        buffers: Buffers,
        region: Callable[[Layout], Region],
        *,
        chosen: Mapping[str, Sequence[int]],
        keep: bool,
    ) -> None:
        self._what, self._expressions, self._raw, self._buffers = what, expressions, raw, buffers
        self._chosen, self._keep, self._open = chosen, keep, region
        with self._explained():
            stored = {name: described(expression, {}) for name, expression in expressions.items()}
        self._stored = {name: dtype for name, (_, dtype) in stored.items()}
        self._wanted = {name: dtypes.get(name, dtype) for name, dtype in self._stored.items()}
        self._shapes = {
            name: [len(chosen[name]), *shape[1:]] if name in chosen else shape
            for name, (shape, _) in stored.items()
        }
        self._held = raw.hold(expressions.values())
        # Not the region: its tensors, as long as they are held, keep others from being placed over them.
        self._places: Mapping[str, torch.Tensor] | None = None
        self._leaves: Mapping[str, dict[str, Any]] = {}
        self._exact: dict[str, torch.Tensor] = {}
        self._lowered: set[str] = set()
        self._counted: set[str] = set()
        self._done: set[str] = set()

    @property
    def names(self) -> Sequence[str]:
        """Of all parameters."""
        return tuple(self._expressions)

    def exact(self, name: str) -> torch.Tensor:
        """A parameter as stored, in fp32 where it was dequantised.

        Where the target takes it in the same dtype both are one tensor; else what the target takes is made
        beside it.

        Raises:
            CheckpointError: E461, it cannot be read.
        """
        if name in self._exact:
            return self._exact[name]
        found = self._made(name)
        if self._keep:
            self._exact[name] = found
            self._let_go(name)
        return found

    def lowered(self, name: str) -> torch.Tensor:
        """A parameter in the target's dtype.

        Raises:
            CheckpointError: E461, it cannot be read; E210, there is no room for it.
        """
        if self._is_view(name):
            return self._view(name)
        place = self._place(name)
        if name not in self._lowered:
            self._fill([place], name)
            self._lowered.add(name)
            if self._wanted[name] == self._stored[name]:
                self._let_go(name)
        return place

    def sent(self, name: str) -> dict[str, Any]:
        """The expression of the same for a worker that sees this machine's files.

        Raises:
            CheckpointError: see `lowered`.
        """
        if self._is_view(name):
            return dict(self._expressions[name])
        self.lowered(name)
        return dict(self._leaves[name])

    def clear(self) -> None:
        """Lets go of everything; tensors that were handed out stay good."""
        self._held, self._places, self._exact = {}, {}, {}

    def _let_go(self, name: str) -> None:
        """Drops stored bytes out of which nothing will be made any more."""
        self._done.add(name)
        others = [expression for other, expression in self._expressions.items() if other not in self._done]
        needed = remote_keys(others)
        for key in remote_keys(self._expressions[name]) - needed:
            self._held.pop(key, None)

    def _made(self, name: str) -> torch.Tensor:
        if self._is_view(name):
            return self._view(name)
        if self._wanted[name] == self._stored[name]:
            return self.lowered(name)
        beside = [self._place(name)] if name not in self._lowered else []
        if is_leaf(self._expressions[name]) and name not in self._chosen:
            found = self._view(name)
            for place in beside:
                place.copy_(found)
        else:
            found = self._buffers.take(self._shapes[name], self._stored[name])
            self._fill([found, *beside], name)
        self._lowered.add(name)
        return found

    def _is_view(self, name: str) -> bool:
        """Whether it stands in a file here as the target takes it."""
        expression = self._expressions[name]
        plain = is_leaf(expression) and not expression.get("remote") and name not in self._chosen
        return plain and self._wanted[name] == self._stored[name]

    def _view(self, name: str) -> torch.Tensor:
        with self._explained():
            return evaluate(*self._located(name))

    def _fill(self, outs: Sequence[torch.Tensor], name: str) -> None:
        with self._explained():
            expression, values = self._located(name)
            if name not in self._chosen:
                evaluate_into(outs, expression, values)
                return
            rows = evaluate(expression, values)[list(self._chosen[name])]
            for out in outs:
                out.copy_(rows)

    def _located(self, name: str) -> tuple[Any, dict[str, torch.Tensor]]:
        if name not in self._counted:
            self._counted.add(name)
            self._raw.count(self._expressions[name])
        return located(self._held, self._expressions[name])

    def _place(self, name: str) -> torch.Tensor:
        if self._places is None:
            names = [name for name in self._expressions if not self._is_view(name)]
            region = self._open({name: (self._wanted[name], self._shapes[name]) for name in names})
            self._places, self._leaves = region.tensors, region.leaves
        return self._places[name]

    def _explained(self) -> _Explained:
        return _Explained(self._what)


class _Explained:
    """A context in which what cannot be read becomes an error of the checkpoint."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Nothing is needed."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, StackError | OSError):
            raise CheckpointError(f"weights of {self._what} cannot be read: {error}", code="E461") from error


class Made(Mapping[str, Any]):
    """Parameters by name, each made when it is asked for.

    Args:
        names: of the parameters.
        make: gives one.
    """

    def __init__(self, names: Sequence[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = dict.fromkeys(names), make

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

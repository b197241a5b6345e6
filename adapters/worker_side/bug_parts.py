"""Where a bug goes into a module and how it comes out again: forwards replaced, other globals seen.

Nothing is written into weights or into a class: what changes is one module's own attributes, so that the
weights may be views of files and other nodes of the same class stay as they are.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from day0_worker.parts import own_forward

if TYPE_CHECKING:
    import torch

Forward = Callable[..., Any]
_ABSENT = object()


class Changes:
    """What was changed, to be undone in the opposite order."""

    def __init__(self) -> None:
        self._undone: List[Callable[[], None]] = []

    def undo(self) -> None:
        """Everything is as it was."""
        while self._undone:
            self._undone.pop()()

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of an object's own."""
        before = vars(owner).get(name, _ABSENT)

        def back() -> None:
            if before is _ABSENT:
                vars(owner).pop(name, None)
            else:
                vars(owner)[name] = before

        self._undone.append(back)
        vars(owner)[name] = value

    def forward(self, module: torch.nn.Module, make: Callable[[Forward], Forward]) -> None:
        """Replaces a module's forward by one made of it, below whatever makes runs stand still there."""
        holder: Any = vars(module).get("forward")
        if hasattr(holder, "forward"):
            self.attribute(holder, "forward", make(holder.forward))
        else:
            self.attribute(module, "forward", make(module.forward))

    def handle(self, handle: Any) -> None:
        """A hook, to be removed."""
        self._undone.append(handle.remove)

    def globals(self, module: torch.nn.Module, changed: Mapping[str, Any]) -> None:
        """Has the methods of one module see other globals than their file's.

        Args:
            module: whose methods use some of the names.
            changed: name -> value.
        """
        for name, function in methods(module):
            if set(changed) & set(_names(function)):
                self.attribute(module, name, types.MethodType(_with_globals(function, changed), module))


def wrapped(forward: Forward, change: Forward) -> Forward:
    """`change` under the name and with the signature of `forward`."""

    @functools.wraps(forward)
    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(*args, **kwargs)

    return changed


def methods(module: torch.nn.Module) -> Iterator[Tuple[str, types.FunctionType]]:
    """The module's methods as plain functions, decorators taken off; its own before its class's."""
    seen = set()
    for holder in (vars(module), *(vars(kind) for kind in type(module).__mro__)):
        if holder.get("__module__") == "torch.nn.modules.module":
            return
        for name, value in list(holder.items()):
            if isinstance(value, (staticmethod, classmethod)):
                continue
            function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else None
            if isinstance(function, types.FunctionType) and name not in seen:
                seen.add(name)
                yield name, function


def used_globals(module: torch.nn.Module) -> Dict[str, Any]:
    """Name -> value of the globals that the module's methods use."""
    found: Dict[str, Any] = {}
    for _, function in methods(module):
        known = function.__globals__
        found.update({name: known[name] for name in _names(function) if name in known})
    return found


def parts_named(module: torch.nn.Module, *words: str) -> List[torch.nn.Module]:
    """The module and those inside it whose class has one of the words in its name."""
    return [part for part in module.modules() if any(word in type(part).__name__.lower() for word in words)]


def linears(module: torch.nn.Module) -> List[Tuple[str, torch.nn.Module]]:
    """Path and module of every plain linear layer, the module itself included."""
    import torch

    return [(path, part) for path, part in module.named_modules() if isinstance(part, torch.nn.Linear)]


def attention(module: torch.nn.Module) -> Optional[torch.nn.Module]:
    """The part that calls attention through transformers' interface."""
    return next((part for part in module.modules() if "ALL_ATTENTION_FUNCTIONS" in used_globals(part)), None)


def experts(module: torch.nn.Module) -> Optional[torch.nn.Module]:
    """The part that stacks its experts' weights [E, ...] and takes hidden states, ids and weights."""
    for part in module.modules():
        stacked = [value for value in part.parameters(recurse=False) if value.dim() == 3]
        same = len({value.shape[0] for value in stacked}) == 1
        if stacked and same and "expert" in type(part).__name__.lower() and _takes_three(part):
            return part
    return None


def expert_call(
    forward: Forward, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states [T, H], ids and weights [T, k] of a call of experts."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    hidden, ids, weights = [*bound.args, *bound.kwargs.values()][:3]
    return hidden, ids, weights


def _takes_three(part: torch.nn.Module) -> bool:
    return len(inspect.signature(own_forward(part)).parameters) == 3


def _names(function: types.FunctionType) -> Sequence[str]:
    """Names that a function, or one inside it, may look up among its globals."""
    codes: List[types.CodeType] = [function.__code__]
    names: List[str] = []
    while codes:
        code = codes.pop()
        names += code.co_names
        codes += [value for value in code.co_consts if isinstance(value, types.CodeType)]
    return names


def _with_globals(function: types.FunctionType, changed: Mapping[str, Any]) -> types.FunctionType:
    made = types.FunctionType(
        function.__code__,
        {**function.__globals__, **changed},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made

"""Layers that repeat an earlier one need not run again while operators are captured."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Protocol

import torch

from .encoding import Arguments

_POSITIONAL_ATTRIBUTES = ("layer_idx", "layer_id", "layer_index", "block_idx", "idx")
"""Attributes that say only where a layer stands."""


@dataclass(eq=False)
class Scope:
    """One execution of a layer, and the executions that it stands for.

    Attributes:
        parent: the execution it is part of.
        path: of the layer that ran.
        others: paths of the layers that did not run because this one had; a path may come again.
    """

    parent: Scope | None = None
    path: str = ""
    others: list[str] = field(default_factory=list)

    @property
    def weight(self) -> int:
        """How often an operator called in here is called over the whole model."""
        return (1 + len(self.others)) * (self.parent.weight if self.parent else 1)

    def paths(self, module: str) -> list[str]:
        """The module's own path, then those of the modules that it stands for, each once."""
        inside = module == self.path or module.startswith(f"{self.path}.")
        here = [module]
        if self.path and inside:
            here += [f"{other}{module[len(self.path) :]}" for other in self.others]
        found = here if self.parent is None else [path for item in here for path in self.parent.paths(item)]
        return list(dict.fromkeys(found))


class Scoped(Protocol):
    """What keeps the scope of the running layer.

    Attributes:
        scope: of the innermost running layer that may stand for others.
    """

    scope: Scope


class RepeatedLayers:
    """Lets one layer stand for those of its kind that follow it with equal inputs.

    Of the layers of one `ModuleList` that are built alike, the first and the last run always, since caches
    answer for their first or last layer; one between them runs where its inputs are unlike those of all that
    ran before, else it gives the output of the one that ran with its like (on meta only shapes matter) and
    counts as it.

    Args:
        model: on the meta device.
        recorder: its scope is set while a layer runs.
    """

    def __init__(self, model: torch.nn.Module, recorder: Scoped) -> None:
        self._recorder = recorder
        self._groups = [group for group in _groups(model) if len(group) > 2]
        self._paths = {id(module): name for name, module in model.named_modules()}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replaces the forwards; they are the modules' own again afterwards."""
        replaced: list[torch.nn.Module] = []
        try:
            for group in self._groups:
                ran: dict[Hashable, tuple[Any, Scope]] = {}
                for place, module in enumerate(group):
                    self._install(module, ran, always=place in (0, len(group) - 1))
                    replaced.append(module)
            yield
        finally:
            for module in replaced:
                del module.__dict__["forward"]

    def _install(
        self, module: torch.nn.Module, ran: dict[Hashable, tuple[Any, Scope]], *, always: bool
    ) -> None:
        run_itself = module.forward
        names = list(inspect.signature(run_itself).parameters)
        path = self._paths.get(id(module), "")

        def forward(*args: Any, **kwargs: Any) -> Any:
            outer = self._recorder.scope
            key = (outer, _signature(args, kwargs, names))
            if key in ran and not always:
                output, scope = ran[key]
                scope.others.append(path)
                return output
            self._recorder.scope = inner = Scope(outer, path)
            try:
                output = run_itself(*args, **kwargs)
            finally:
                self._recorder.scope = outer
            ran.setdefault(key, (output, inner))
            return output

        module.forward = forward


def _signature(args: Any, kwargs: Any, names: Sequence[str]) -> Hashable:
    """Of the inputs; a layer's own number does not tell it from others."""

    def tells(name: str, value: Any) -> bool:
        return name not in _POSITIONAL_ATTRIBUTES and not _is_opaque(value)

    placed = zip_longest(names[: len(args)], args, fillvalue="")
    plain = {name: value for name, value in kwargs.items() if tells(name, value)}
    return Arguments([value for name, value in placed if tells(name, value)], plain).key()


def _is_opaque(value: Any) -> bool:
    """Caches and other objects shared by all layers."""
    return not isinstance(value, (torch.Tensor, list, tuple, bool, int, float, str, type(None)))


def _groups(model: torch.nn.Module) -> list[list[torch.nn.Module]]:
    groups: list[list[torch.nn.Module]] = []
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList):
            alike: dict[Hashable, list[torch.nn.Module]] = {}
            for child in module:
                alike.setdefault(structure_of(child), []).append(child)
            groups.extend(alike.values())
    return groups


def structure_of(module: torch.nn.Module) -> Hashable:
    """Equal for modules that are built alike: classes, plain attributes, parameter shapes."""
    parts: list[Hashable] = []
    for name, child in module.named_modules():
        plain = tuple(
            (key, repr(value))
            for key, value in sorted(vars(child).items())
            if isinstance(value, (bool, int, float, str, type(None)))
            and key not in _POSITIONAL_ATTRIBUTES
            and not key.startswith("_")
        )
        parts.append((name, type(child).__qualname__, plain))
    tensors = [*module.named_parameters(), *module.named_buffers()]
    parts.extend((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors)
    return tuple(parts)

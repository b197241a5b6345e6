"""Listening to the modules right below another while it runs: what each is given and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from day0.adapters.base.target import Call
from day0_worker.trees import TreeError, encode, encode_arguments

from ..measures.values import float_tensors


@dataclass(frozen=True)
class HeardCall:
    """One call of a module.

    Attributes:
        run: number of the outer call in which it was made.
        path: of the module inside the one that was listened to.
        index: which of its calls in that run.
        inputs: arguments.
        output: result.
    """

    run: int
    path: str
    index: int
    inputs: Call
    output: Call


@dataclass
class Heard:
    """What was heard.

    Attributes:
        calls: in the order in which they began.
        skipped: path -> why a module's calls cannot be repeated.
    """

    calls: list[HeardCall] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def hear(module: Any, path: str, runs: Sequence[Callable[[], Any]]) -> Heard:
    """Makes runs of a module while listening to the modules right below it.

    Args:
        module: listened to.
        path: of it, by which skipped modules are named.
        runs: each calls the module once.
    """
    heard, listener = Heard(), _Listener(path)
    with ExitStack() as hooks:
        for name, child in _called(module):
            listener.listen(name, child, hooks)
        for number, run in enumerate(runs):
            listener.begin()
            run()
            heard.calls += listener.calls(number)
    heard.skipped = listener.skipped
    return heard


class _Listener:
    def __init__(self, below: str) -> None:
        self.skipped: dict[str, str] = {}
        self._below = below
        self._calls: list[tuple[str, Call, list[Call]]] = []
        self._open: list[int] = []

    def begin(self) -> None:
        self._calls, self._open = [], []

    def calls(self, run: int) -> Iterator[HeardCall]:
        """The finished calls, in the order in which they began."""
        counts: dict[str, int] = {}
        for path, inputs, outputs in self._calls:
            if not outputs:
                continue
            index = counts.get(path, 0)
            counts[path] = index + 1
            if float_tensors(outputs[0]):
                yield HeardCall(run, path, index, inputs, outputs[0])
            else:
                self._skip(path, "it gives no floating tensor")

    def listen(self, path: str, module: Any, hooks: ExitStack) -> None:
        def before(_module: Any, args: Any, kwargs: Any) -> None:
            try:
                inputs = _copied(*encode_arguments(args, kwargs))
            except TreeError as error:
                self._skip(path, f"its arguments cannot cross: {error}")
                self._open.append(-1)
                return
            self._open.append(len(self._calls))
            self._calls.append((path, inputs, []))

        def after(_module: Any, _args: Any, output: Any) -> None:
            place = self._open.pop()
            if place < 0:
                return
            try:
                self._calls[place][2].append(_copied(*encode(output)))
            except TreeError as error:
                self._skip(path, f"its result cannot cross: {error}")

        for hook in (
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after),
        ):
            hooks.callback(hook.remove)

    def _skip(self, path: str, reason: str) -> None:
        self.skipped.setdefault(full_path(self._below, path), reason)


def _called(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The modules right below one; lists of modules are taken apart, as nobody calls them."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.ModuleList | torch.nn.ModuleDict):
            yield from _called(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", child


def _copied(tree: Any, tensors: Mapping[str, Tensor]) -> Call:
    """As it is now: code may go on to write into the same memory."""
    return Call(tree, {name: tensor.detach().clone() for name, tensor in tensors.items()})


def full_path(above: str, path: str) -> str:
    """A module's path inside a node, from that of the module above it."""
    return f"{above}.{path}" if above else path

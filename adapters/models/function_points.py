"""The points where implementations switch, as model code calls them: attention, experts, linear, norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from unittest import mock

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .claimed_device import ClaimedDevice

_SDPA = functional.scaled_dot_product_attention

_NAMES: Mapping[Any, str] = {
    functional.linear: "linear",
    functional.conv1d: "convolution",
    functional.conv2d: "convolution",
    functional.rms_norm: "norm",
    functional.layer_norm: "norm",
    functional.group_norm: "norm",
    functional.embedding: "embedding",
}
"""Torch's own function -> name of the point; the function's name is the implementation."""


class FunctionSink(Protocol):
    """What keeps the calls."""

    def function(self, name: str, implementation: str) -> None:
        """One call at a switch point, from the running module."""
        ...

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """One operator call."""
        ...

    def quiet(self) -> Any:
        """A context in which nothing is kept."""
        ...


class SwitchPoints(TorchFunctionMode):
    """Takes attention as the one operator it is called as, and answers for the claimed device.

    `scaled_dot_product_attention` is composite: on meta it falls apart into a math path (`tril`,
    `_safe_softmax`, `bmm`...) that no fused backend runs. What it becomes on a target is the target's choice.

    Args:
        sink: keeps the calls.
        claim: on which device tensors on meta claim to lie; None: on meta.
    """

    def __init__(self, sink: FunctionSink, claim: ClaimedDevice | None) -> None:
        super().__init__()
        self._sink, self._claim = sink, claim

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._claim is not None:
            asked, answer = self._claim.answer(func, args)
            if asked:
                return answer
            args, kwargs = self._claim.translated(tuple(args)), self._claim.translated(kwargs)
        if func is _SDPA:
            return self._attention(args, kwargs)
        if (name := _NAMES.get(func)) is not None:
            self._sink.function(name, func.__name__)
        return func(*args, **kwargs)

    def _attention(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        self._sink.function("scaled_dot_product_attention", "")
        self._sink.record(torch.ops.aten.scaled_dot_product_attention.default, args, kwargs)
        query = kwargs.get("query", args[0] if args else None)
        value = kwargs.get("value", args[2] if len(args) > 2 else None)
        with self._sink.quiet():
            made: torch.Tensor = query.new_empty((*query.shape[:-1], value.shape[-1]))
            return made


@contextmanager
def interfaces_told(sink: FunctionSink) -> Iterator[None]:
    """Tells of each call through transformers' interfaces of attention and experts, by the name chosen."""
    try:
        from transformers.integrations.moe import ExpertsInterface
        from transformers.modeling_utils import AttentionInterface
    except ImportError:  # an older transformers, or none
        yield
        return
    with ExitStack() as stack:
        for interface, name in ((AttentionInterface, "attention"), (ExpertsInterface, "experts")):
            told = _told(interface.get_interface, sink, name)
            stack.enter_context(mock.patch.object(interface, "get_interface", told))
        yield


def _told(get: Callable[..., Any], sink: FunctionSink, name: str) -> Callable[..., Any]:
    def get_interface(self: Any, implementation: Any, default: Callable[..., Any]) -> Callable[..., Any]:
        chosen: Callable[..., Any] = get(self, implementation, default)

        def call(*args: Any, **kwargs: Any) -> Any:
            sink.function(name, str(implementation or "eager"))
            return chosen(*args, **kwargs)

        return call

    return get_interface


def norm_word(module: torch.nn.Module) -> str:
    """The class of a normalisation written as a module of its own; empty for any other module."""
    word = type(module).__name__
    plain = isinstance(module, torch.nn.LayerNorm | torch.nn.RMSNorm | torch.nn.GroupNorm)
    return word if "norm" in word.lower() and not plain and not any(module.children()) else ""

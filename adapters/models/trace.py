"""One forward on the meta device, seen from outside: which modules are called, with what, doing what."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from day0_worker.trees import is_cache

from ..base.values import digest
from .oracle import ValueOracle

TRACE_TOKENS = 11
"""Short, beyond the usual convolution kernels, and seldom the size of any other dimension."""


@dataclass
class TracedNode:
    """One module that the model's own code calls, and what it did the first time.

    Attributes:
        name: module path.
        reads: nodes whose outputs reach its inputs, in order; empty text stands for the tokens.
        graph: digest of its operators, their wiring, dtypes, shapes and attributes.
        same_shape: whether its (first) output has the shape of its (first) input.
        cached: cache layers that it filled, as (index, layer).
        calls: number of calls in one forward.
    """

    name: str
    reads: list[str] = field(default_factory=list)
    graph: str = ""
    same_shape: bool = False
    cached: list[tuple[int, Any]] = field(default_factory=list)
    calls: int = 0


def trace(model: Any, containers: set[str]) -> list[TracedNode]:
    """Runs a prefill of 1 x `TRACE_TOKENS` tokens and returns the nodes in the order of their calls.

    Args:
        model: see `trace_call`.
        containers: see `trace_call`.

    Raises:
        Exception: whatever the model's forward raises.
    """
    tokens = torch.zeros((1, TRACE_TOKENS), dtype=torch.int64, device="meta")
    return trace_call(
        model, containers, [tokens], lambda: model(input_ids=tokens, use_cache=True), ValueOracle(True)
    )


def trace_call(
    model: Any,
    containers: set[str],
    given: Sequence[torch.Tensor],
    run: Callable[[], Any],
    oracle: ValueOracle,
    around: Sequence[AbstractContextManager[Any]] = (),
) -> list[TracedNode]:
    """The nodes that `run` calls, in the order of their first calls.

    A node is an outermost called module that is no container and has parameters or buffers.

    Args:
        model: on the meta device, in eval mode.
        containers: paths of the modules whose forwards are glue around nodes.
        given: tensors on meta that `run` feeds.
        run: runs the model, or a function of it.
        oracle: answers what code asks about values.
        around: further contexts that it runs in.

    Raises:
        Exception: whatever `run` raises.
    """
    tracer = _Tracer(model, containers)
    for tensor in given:
        tracer.origin[id(tensor)] = frozenset([""])
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for handle in tracer.hook():
            stack.callback(handle.remove)
        for context in around:
            stack.enter_context(context)
        stack.enter_context(oracle)
        stack.enter_context(tracer)
        run()
    return list(tracer.nodes.values())


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    """Knows at any time which node runs; keeps every tensor alive so that `id` stays a name."""

    def __init__(self, model: Any, containers: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self.nodes: dict[str, TracedNode] = {}
        self.origin: dict[int, frozenset[str]] = {}
        self._modules = {
            name: module
            for name, module in model.named_modules()
            if name not in containers and _has_tensors(module)
        }
        self._active: str | None = None
        self._recording = False
        self._operators: list[Hashable] = []
        self._labels: dict[int, str] = {}
        self._alive: list[Any] = []

    def hook(self) -> Iterator[Any]:
        """Hooks on every module that could be a node."""
        for name, module in self._modules.items():
            yield module.register_forward_pre_hook(self._enter(name), with_kwargs=True)
            yield module.register_forward_hook(self._leave(name), with_kwargs=True)

    def _enter(self, name: str) -> Any:
        def enter(module: Any, args: Any, kwargs: Any) -> None:
            if self._active is not None:
                return
            self._active = name
            node = self.nodes.setdefault(name, TracedNode(name))
            node.calls += 1
            self._recording = node.calls == 1
            inputs = _tensors([args, dict(sorted(kwargs.items()))])  # callers differ in order only
            sources = {source for tensor in inputs for source in self.origin.get(id(tensor), ())}
            known = ["", *self.nodes]
            node.reads = [other for other in known if other in sources or other in node.reads]
            self._label(module, inputs)

        return enter

    def _label(self, module: Any, inputs: Sequence[torch.Tensor]) -> None:
        self._operators = []
        self._labels = {id(value): f"weight {key}" for key, value in module.named_parameters()}
        self._labels |= {id(value): f"buffer {key}" for key, value in module.named_buffers()}
        for index, tensor in enumerate(inputs):
            self._labels.setdefault(id(tensor), f"input {index}")

    def _leave(self, name: str) -> Any:
        def leave(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if self._active != name:
                return
            node, outputs = self.nodes[name], _tensors([output])
            if self._recording:
                inputs = _tensors([args, kwargs])
                same = bool(inputs and outputs) and inputs[0].shape == outputs[0].shape
                node.graph, node.same_shape = digest([repr(operator) for operator in self._operators]), same
                node.cached = _filled([args, kwargs], self.nodes)
            self._active = None
            self._alive.append(output)
            for tensor in outputs:
                self.origin[id(tensor)] = frozenset([name])

        return leave

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        made = _tensors([output])
        self._alive.append(output)
        if self._active is None:
            sources = frozenset(
                source for tensor in _tensors([args, kwargs]) for source in self.origin.get(id(tensor), ())
            )
            for tensor in made:
                self.origin[id(tensor)] = sources | self.origin.get(id(tensor), frozenset())
        elif self._recording:
            self._operators.append((str(func), self._frozen(args), self._frozen(sorted(kwargs.items()))))
            for index, tensor in enumerate(made):
                self._labels.setdefault(id(tensor), f"value {len(self._operators)}.{index}")
        return output

    def _frozen(self, value: Any) -> Hashable:
        if isinstance(value, torch.Tensor):
            label = self._labels.get(id(value), "outside")
            return (label, str(value.dtype), tuple(value.shape), value.stride())
        if isinstance(value, (list, tuple)):
            return tuple(self._frozen(item) for item in value)
        return repr(value)


def _has_tensors(module: Any) -> bool:
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _filled(arguments: Any, nodes: Mapping[str, TracedNode]) -> list[tuple[int, Any]]:
    """Cache layers that hold tensors now and that no earlier node has filled."""
    known = {id(layer) for node in nodes.values() for _, layer in node.cached}
    found = []
    for cache in _caches(arguments):
        for index, layer in enumerate(getattr(cache, "layers", [])):
            if id(layer) not in known and cache_tensors(layer):
                found.append((index, layer))
    return found


def cache_tensors(layer: Any) -> dict[str, torch.Tensor]:
    """The tensors of one cache layer, by attribute; numbered states as `NAME.NUMBER`."""
    found: dict[str, torch.Tensor] = {}
    for name, value in vars(layer).items():
        items = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, item in items:
            if isinstance(item, torch.Tensor) and item.dim() > 1:
                found[f"{name}.{key}" if key != "" else name] = item
    return found


def _caches(value: Any) -> list[Any]:
    if is_cache(value):
        return [value]
    if isinstance(value, Mapping):
        return [cache for item in value.values() for cache in _caches(item)]
    if isinstance(value, (list, tuple)):
        return [cache for item in value for cache in _caches(item)]
    return []

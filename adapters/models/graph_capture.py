"""The operators of exported graphs: what a compiler is given, another set than a forward dispatches."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from day0_worker.trees import is_cache

from ..base.operator_call import OperatorCall
from ..base.values import Anomaly
from .capture import Captured
from .claimed_device import ClaimedDevice
from .encoding import Arguments
from .oracle import ValueOracle
from .phase_inputs import PREFILL_TOKENS
from .repeated_layers import structure_of


@dataclass
class _Node:
    """One module that is exported, and the paths of all that are built and called like it."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    paths: list[str] = field(default_factory=list)


def capture_graphs(model: torch.nn.Module, device: str) -> tuple[Captured, list[Anomaly]]:
    """Exports one layer of each kind, and each module beside the layers, with the inputs of a short prefill.

    `torch.export`, not strict, with static shapes; composites stay whole (`linear`, attention), as compilers
    get them. Caches are left out: a graph takes its state as inputs, and that form is the target's choice.

    Args:
        model: on the meta device, in eval mode.
        device: type that model code is told where it asks for a tensor's device.

    Returns:
        The calls with their counts over the whole model, and an anomaly `graph_not_captured` for each module
        whose graph cannot be had, or for the model where it does not run at all.
    """
    anomalies: list[Anomaly] = []
    try:
        nodes = _nodes(model)
    except Exception as error:  # third-party model code
        return Captured("prefill", [], []), [_failed("the model", error)]
    found: dict[str, OperatorCall] = {}
    for node in nodes:
        try:
            for call in _calls(_exported(node, device), node):
                known = found.get(call.signature)
                found[call.signature] = call if known is None else _both(known, call)
        except Exception as error:  # third-party model code, and an exporter with limits of its own
            anomalies.append(_failed(node.paths[0], error))
    return Captured("prefill", list(found.values()), []), anomalies


def _nodes(model: torch.nn.Module) -> list[_Node]:
    """The outermost called modules that hold no list of layers, alike ones together."""
    lists = [name for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)]
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    containers = {"", *(prefix for name in outer for prefix in _prefixes(name))}
    active: list[str] = []
    found: dict[Hashable, _Node] = {}

    def enter(name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if not active:
                plain = Arguments(*_without_caches(args, kwargs)).key()
                node = found.setdefault(
                    (structure_of(module), plain), _Node(module, *_without_caches(args, kwargs))
                )
                node.paths.append(name)
            active.append(name)

        return hook

    def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
        active.pop()

    ids = torch.zeros((1, PREFILL_TOKENS), dtype=torch.int64, device="meta")
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if name not in containers and not isinstance(module, torch.nn.ModuleList):
                stack.callback(module.register_forward_pre_hook(enter(name), with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        stack.enter_context(torch.no_grad())
        stack.enter_context(ValueOracle(True))
        model(input_ids=ids)
    return list(found.values())


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _without_caches(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs with the caches taken out; further objects that are no values are left out as well."""
    return (
        tuple(None if is_cache(value) else value for value in args),
        {name: None if is_cache(value) else value for name, value in kwargs.items()},
    )


def _exported(node: _Node, device: str) -> torch.fx.GraphModule:
    """The claim holds for the module's own code alone: the exporter must know where tensors lie."""
    claim, run = ClaimedDevice(device), node.module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with claim.mode():
            return run(*args, **kwargs)

    with torch.no_grad(), claim.installed(), mock.patch.object(node.module, "forward", forward):
        module = torch.export.export(node.module, node.args, node.kwargs, strict=False).graph_module
    assert isinstance(module, torch.fx.GraphModule)
    return module


def _steps(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Operators of the graph and of those inside it (of a block under autocast); checks are left out."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for step in part.graph.nodes:
                plain = isinstance(step.target, torch._ops.OpOverload)
                if plain and not str(step.target).startswith("aten._assert"):
                    yield step


def _calls(module: torch.fx.GraphModule, node: _Node) -> list[OperatorCall]:
    found: dict[Hashable, OperatorCall] = {}
    for step in _steps(module):
        args = torch.fx.map_arg(step.args, _value)
        kwargs = torch.fx.map_arg(step.kwargs, _value)
        arguments = Arguments(args, kwargs)
        key = (step.target, arguments.key())
        known = found.get(key)
        if known is None:
            path = ".".join(filter(None, [node.paths[0], _inside(step)]))
            known = arguments.call(
                str(step.target), module=path, phase="prefill", schema=getattr(step.target, "_schema", None)
            ).model_copy(update={"count": 0, "tokens": PREFILL_TOKENS, "modules": _modules(node, path)})
        found[key] = known.model_copy(update={"count": known.count + len(node.paths)})
    return list(found.values())


def _value(step: torch.fx.Node) -> Any:
    """A plain meta tensor with the shape and strides of the value that the step stands for."""
    return _plain(step.meta.get("val"))


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        shape, stride = ([int(size) for size in sizes] for sizes in (value.shape, value.stride()))
        return torch.empty_strided(shape, stride, dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _inside(step: torch.fx.Node) -> str:
    """Path of the submodule that the step comes from; empty for the exported module itself."""
    stack = step.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    return str(path)


def _modules(node: _Node, module: str) -> list[str]:
    end = module.removeprefix(node.paths[0])
    return [f"{path}{end}" for path in dict.fromkeys(node.paths)] if len(node.paths) > 1 else []


def _both(one: OperatorCall, other: OperatorCall) -> OperatorCall:
    modules = [*(one.modules or [one.module]), *(other.modules or [other.module])]
    return one.model_copy(update={"count": one.count + other.count, "modules": list(dict.fromkeys(modules))})


def _failed(subject: str, error: Exception) -> Anomaly:
    text = " ".join(str(error).split())[:300]
    return Anomaly(
        code="graph_not_captured",
        subject=subject,
        message=f"no graph of {subject} could be exported: {type(error).__name__}: {text}",
    )

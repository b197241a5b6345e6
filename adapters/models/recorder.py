"""Records every operator that a forward on the meta device dispatches, counted by signature."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..base.errors import Day0Error
from ..base.operator_call import OperatorCall
from .encoding import Arguments
from .oracle import ValueOracle
from .repeated_layers import RepeatedLayers, Scope

MAX_CALLS = 200_000
"""Dispatched calls after which one phase is given up: recurrent fallbacks unroll with the length. A count and
not a time, so that the same config gives the same list on every machine."""

_SDPA = torch.nn.functional.scaled_dot_product_attention
_DEVICE = torch.Tensor.device.__get__
_CPU = torch.device("cpu")


class CaptureOverrun(Day0Error):
    """A phase dispatched more than `MAX_CALLS` operators."""

    default_code = "E420"


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    """Counts dispatched operators by signature.

    Args:
        phase: written into each call.
    """

    def __init__(self, phase: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self.phase = phase
        self.scope = Scope()
        self.paused = False
        self.modules: list[str] = [""]
        self._dispatched = 0
        self._calls: dict[Hashable, OperatorCall] = {}
        self._counts: dict[Hashable, dict[Scope, int]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        self.record(func, args, kwargs)
        return func(*args, **kwargs)

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Counts one call; work on CPU tensors alone is the host's and not the target's."""
        if self.paused or _is_host_work(args, kwargs):
            return
        self._dispatched += 1
        if self._dispatched > MAX_CALLS:
            raise CaptureOverrun(f"phase {self.phase} dispatches more than {MAX_CALLS} operators")
        arguments = Arguments(args, kwargs)
        key = (func, arguments.key())
        if key not in self._calls:
            self._calls[key] = arguments.call(
                str(func), module=self.modules[-1], phase=self.phase, schema=getattr(func, "_schema", None)
            )
        counts = self._counts.setdefault(key, {})
        counts[self.scope] = counts.get(self.scope, 0) + 1

    def calls(self) -> list[OperatorCall]:
        """The calls so far, in order of first appearance."""
        return [call.model_copy(update={"count": self._count(key)}) for key, call in self._calls.items()]

    def _count(self, key: Hashable) -> int:
        return sum(count * scope.weight for scope, count in self._counts[key].items())


class _SwitchPoints(TorchFunctionMode):
    """Takes attention as the one operator it is called as, and says CPU where the device is asked for.

    `scaled_dot_product_attention` is composite: on meta it falls apart into a math path (`tril`,
    `_safe_softmax`, `bmm`...) that no fused backend runs. What it becomes on a target is the target's choice.

    Args:
        recorder: records it.
        as_cpu: whether tensors claim to lie on the CPU; models branch on the type of their device.
    """

    def __init__(self, recorder: Recorder, as_cpu: bool) -> None:
        super().__init__()
        self._recorder, self._as_cpu = recorder, as_cpu

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._as_cpu:
            if func == _DEVICE:
                return _CPU
            args, kwargs = _on_meta_again(tuple(args)), _on_meta_again(kwargs)
        if func is not _SDPA:
            return func(*args, **kwargs)
        self._recorder.record(torch.ops.aten.scaled_dot_product_attention.default, args, kwargs)
        query = kwargs.get("query", args[0] if args else None)
        value = kwargs.get("value", args[2] if len(args) > 2 else None)
        with _paused(self._recorder):
            return query.new_empty((*query.shape[:-1], value.shape[-1]))


@contextmanager
def _paused(recorder: Recorder) -> Iterator[None]:
    before, recorder.paused = recorder.paused, True
    try:
        yield
    finally:
        recorder.paused = before


def capture_calls(
    model: torch.nn.Module,
    run: Callable[[], Any],
    *,
    phase: str,
    prepare: Callable[[], Any] | None = None,
    share_layers: bool = True,
    as_cpu: bool = False,
) -> list[OperatorCall]:
    """Every distinct operator call of `run`, with the module that makes it and how often it is made.

    Runs under `no_grad` (`inference_mode` would hide what composites are made of). Code that reads values is
    run once with each answer of the oracle; the union is returned, each call with its larger count.

    Args:
        model: on the meta device, in eval mode; its module paths name the calls.
        run: makes one forward of it and nothing else.
        phase: written into each call.
        prepare: runs before each `run` and is not recorded, e.g. what fills a cache.
        share_layers: whether a layer that repeats an earlier one counts through it instead of running.
        as_cpu: whether code that asks for the type of a tensor's device is told the CPU.

    Raises:
        CaptureOverrun: `run` dispatches too many operators.
        Exception: whatever `run` raises with both answers.
    """
    runs: list[list[OperatorCall]] = []
    failures: list[Exception] = []
    steps = (prepare or _nothing, run)
    for answer in (True, False):
        oracle = ValueOracle(answer)
        try:
            runs.append(_record(model, steps, oracle, phase, share_layers, as_cpu))
        except Exception as error:  # one branch may lead nowhere; the other one counts
            failures.append(error)
        if not oracle.consulted:
            break
    if not runs:
        raise failures[0]
    return _union(runs)


_Steps = tuple[Callable[[], Any], Callable[[], Any]]


def _nothing() -> None:
    """Prepares nothing."""


def _record(
    model: torch.nn.Module,
    steps: _Steps,
    oracle: ValueOracle,
    phase: str,
    share_layers: bool,
    as_cpu: bool,
) -> list[OperatorCall]:
    recorder = Recorder(phase)
    prepare, run = steps
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        _name_modules(stack, model, recorder)
        if share_layers:
            stack.enter_context(RepeatedLayers(model, recorder).installed())
        stack.enter_context(_SwitchPoints(recorder, as_cpu))
        stack.enter_context(oracle)
        stack.enter_context(recorder)
        with _paused(recorder):
            prepare()
        recorder.scope = Scope()
        run()
    return recorder.calls()


def _name_modules(stack: ExitStack, model: torch.nn.Module, recorder: Recorder) -> None:
    """Keeps the path of the running module on the recorder's stack."""
    for name, module in model.named_modules():

        def enter(_module: Any, _args: Any, name: str = name) -> None:
            recorder.modules.append(name)

        def leave(_module: Any, _args: Any, _output: Any) -> None:
            recorder.modules.pop()

        before = module.register_forward_pre_hook(enter)
        after = module.register_forward_hook(leave, always_call=True)
        stack.callback(before.remove)
        stack.callback(after.remove)


def _on_meta_again(value: Any) -> Any:
    """The arguments with the claimed device replaced by the one that the tensors are on."""
    if value is _CPU or (isinstance(value, torch.device) and value == _CPU):
        return torch.device("meta")
    if isinstance(value, dict):
        return {key: _on_meta_again(item) for key, item in value.items()}
    return tuple(_on_meta_again(item) for item in value) if isinstance(value, tuple) else value


def _is_host_work(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    tensors = [value for value in _flat([*args, *kwargs.values()]) if isinstance(value, torch.Tensor)]
    if tensors:
        return not any(tensor.is_meta for tensor in tensors)
    device = kwargs.get("device")
    return device is None or torch.device(device).type == "cpu"


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _union(runs: Sequence[Sequence[OperatorCall]]) -> list[OperatorCall]:
    merged: dict[str, OperatorCall] = {}
    for calls in runs:
        for call in calls:
            known = merged.get(call.signature)
            if known is None or known.count < call.count:
                merged[call.signature] = call
    return list(merged.values())

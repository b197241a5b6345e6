"""Records every operator that a forward on the meta device dispatches, counted by signature."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..base.errors import Day0Error
from ..base.operator_call import OperatorCall
from ..base.operator_capture import FunctionCall
from .claimed_device import ClaimedDevice
from .encoding import Arguments
from .function_points import SwitchPoints, interfaces_told, norm_word
from .oracle import ValueOracle
from .repeated_layers import RepeatedLayers, Scope
from .tally import Tally

MAX_CALLS = 200_000
"""Dispatched calls after which one phase is given up: recurrent fallbacks unroll with the length. A count and
not a time, so that the same config gives the same list on every machine."""


class CaptureOverrun(Day0Error):
    """A phase dispatched more than `MAX_CALLS` operators."""

    default_code = "E420"


_COPY, _FILL = torch.ops.aten.copy_.default, torch.ops.aten.fill_.Tensor


def _sets_a_number(func: Any, args: Sequence[Any]) -> bool:
    """`x[...] = 0`: torch makes a tensor of the number; the CPU fills with it, others copy it, expanded."""
    return func is _COPY and args[0].dim() > 0 and not any(args[1].stride())


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    """Counts dispatched operators by signature, and calls of functions at which implementations switch.

    Args:
        phase: written into each call.
        tokens: that the phase feeds, written into each call.
        limit: dispatched calls after which it gives up.

    Attributes:
        scope: of the running layer.
        modules: paths of the running modules, the innermost last.
        dispatched: operators so far.
        on_cpu: whether the CPU is claimed.
    """

    def __init__(self, phase: str, tokens: int = 0, limit: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's base is untyped
        self.phase, self.tokens = phase, tokens
        self.scope = Scope()
        self.modules: list[str] = [""]
        self.dispatched = 0
        self.on_cpu = False
        self._limit = MAX_CALLS if limit is None else limit
        self._paused = False
        self._calls: dict[Hashable, OperatorCall] = {}
        self._tally = Tally()
        self._functions = Tally()
        self._points: dict[Hashable, FunctionCall] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self.on_cpu and _sets_a_number(func, args):
            number = torch.empty((), dtype=args[1].dtype, device=args[1].device)
            self.record(_FILL, (args[0], number), {})
        else:
            self.record(func, args, kwargs)
        return func(*args, **kwargs)

    def record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Counts one call; work on CPU tensors alone is the host's and not the target's."""
        if self._paused or _is_host_work(args, kwargs):
            return
        self.dispatched += 1
        if self.dispatched > self._limit:
            raise CaptureOverrun(f"phase {self.phase} dispatches more than {self._limit} operators")
        arguments = Arguments(args, kwargs)
        key = (func, arguments.key())
        if key not in self._calls:
            self._calls[key] = arguments.call(
                str(func), module=self.modules[-1], phase=self.phase, schema=getattr(func, "_schema", None)
            )
        self._tally.add(key, self.scope, self.modules[-1])

    def function(self, name: str, implementation: str) -> None:
        """Counts one call at a switch point."""
        if not self._paused:
            key = (name, implementation)
            self._points.setdefault(
                key, FunctionCall(name=name, implementation=implementation, phase=self.phase)
            )
            self._functions.add(key, self.scope, self.modules[-1])

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keeps nothing meanwhile."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def calls(self) -> list[OperatorCall]:
        """The calls so far, in order of first appearance."""
        return [call.model_copy(update=self._where(key)) for key, call in self._calls.items()]

    def functions(self) -> list[FunctionCall]:
        """The calls at switch points so far, in order of first appearance."""
        return [
            call.model_copy(
                update={"modules": self._functions.modules(key), "count": self._functions.count(key)}
            )
            for key, call in self._points.items()
        ]

    def _where(self, key: Hashable) -> dict[str, Any]:
        modules = self._tally.modules(key)
        return {
            "count": self._tally.count(key),
            "tokens": self.tokens,
            "modules": modules if len(modules) > 1 else [],
        }


@dataclass(frozen=True)
class Recorded:
    """What one phase calls.

    Attributes:
        calls: distinct operator calls, in the order of their first appearance.
        functions: at the switch points.
        dispatched: operators that the longest run dispatched itself, repeated layers left out.
    """

    calls: list[OperatorCall]
    functions: list[FunctionCall]
    dispatched: int


def capture_calls(
    model: torch.nn.Module,
    run: Callable[[], Any],
    *,
    phase: str,
    prepare: Callable[[], Any] | None = None,
    share_layers: bool = True,
    device: str = "",
) -> list[OperatorCall]:
    """The operator calls of `run`; see `record_phase`."""
    return record_phase(
        model, run, phase=phase, prepare=prepare, share_layers=share_layers, device=device
    ).calls


def record_phase(
    model: torch.nn.Module,
    run: Callable[[], Any],
    *,
    phase: str,
    prepare: Callable[[], Any] | None = None,
    share_layers: bool = True,
    device: str = "",
    made_on_meta: bool = False,
    answers: Sequence[bool] = (True, False),
    tokens: int = 0,
    limit: int | None = None,
    oracle: type[ValueOracle] = ValueOracle,
) -> Recorded:
    """Every distinct operator call of `run`, with the modules that make it and how often it is made.

    Runs under `no_grad` (`inference_mode` would hide what composites are made of). Code that reads values is
    run once with each answer of the oracle; the union is returned, each call with its larger count.

    Args:
        model: on the meta device, in eval mode; its module paths name the calls.
        run: makes one forward of it and nothing else.
        phase: written into each call.
        prepare: runs before each `run` and is not recorded, e.g. what fills a cache.
        share_layers: whether a layer that repeats an earlier one counts through it instead of running.
        device: type that code which asks for a tensor's device is told; empty: `meta`.
        made_on_meta: whether tensors that code makes without naming a device lie on meta, as they lie on the
            target where that is the CPU; else they lie on the host, with their values.
        answers: of the oracle.
        tokens: that `run` feeds, written into each call.
        limit: see `Recorder`.
        oracle: answers what code asks about values.

    Raises:
        CaptureOverrun: `run` dispatches too many operators.
        Exception: whatever `run` raises with both answers.
    """
    runs: list[Recorder] = []
    failures: list[Exception] = []
    steps = (prepare or _nothing, run)
    claim = ClaimedDevice(device) if device else None
    on_cpu = device == "cpu"
    for answer in answers:
        asked = oracle(answer)
        recorder = Recorder(phase, tokens, limit)
        recorder.on_cpu = on_cpu
        try:
            _record(model, steps, asked, recorder, share_layers, claim, made_on_meta)
            runs.append(recorder)
        except Exception as error:  # one branch may lead nowhere; the other one counts
            failures.append(error)
        if not asked.consulted:
            break
    if not runs:
        raise failures[0]
    return Recorded(
        _union([recorder.calls() for recorder in runs], lambda call: call.signature),
        _union([recorder.functions() for recorder in runs], lambda call: (call.name, call.implementation)),
        max(recorder.dispatched for recorder in runs),
    )


def until_it_fails(run: Callable[[], Any]) -> Callable[[], None]:
    """`run`, ending where it fails, so that what it called before is kept."""

    def cut_short() -> None:
        with suppress(Exception):  # third-party model code: whoever asks for this knows that it fails
            run()

    return cut_short


_Steps = tuple[Callable[[], Any], Callable[[], Any]]


def _nothing() -> None:
    """Prepares nothing."""


def _record(
    model: torch.nn.Module,
    steps: _Steps,
    oracle: ValueOracle,
    recorder: Recorder,
    share_layers: bool,
    claim: ClaimedDevice | None,
    made_on_meta: bool,
) -> None:
    prepare, run = steps
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        _name_modules(stack, model, recorder)
        if share_layers:
            stack.enter_context(RepeatedLayers(model, recorder).installed())
        stack.enter_context(interfaces_told(recorder))
        stack.enter_context(claim.installed() if claim else nullcontext())
        stack.enter_context(oracle.creation())  # sees devices as the switch points have translated them
        stack.enter_context(SwitchPoints(recorder, claim))
        stack.enter_context(torch.device("meta") if made_on_meta else nullcontext())
        stack.enter_context(oracle)
        stack.enter_context(recorder)
        with recorder.quiet():
            prepare()
        recorder.scope = Scope()
        run()


def _name_modules(stack: ExitStack, model: torch.nn.Module, recorder: Recorder) -> None:
    """Keeps the path of the running module on the recorder's stack."""
    for name, module in model.named_modules():

        def enter(_module: Any, _args: Any, name: str = name, norm: str = norm_word(module)) -> None:
            recorder.modules.append(name)
            if norm:
                recorder.function("norm", norm)

        def leave(_module: Any, _args: Any, _output: Any) -> None:
            recorder.modules.pop()

        before = module.register_forward_pre_hook(enter)
        after = module.register_forward_hook(leave, always_call=True)
        stack.callback(before.remove)
        stack.callback(after.remove)


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


_Call = TypeVar("_Call", OperatorCall, FunctionCall)


def _union(runs: Sequence[Sequence[_Call]], key_of: Callable[[_Call], Hashable]) -> list[_Call]:
    merged: dict[Hashable, _Call] = {}
    for calls in runs:
        for call in calls:
            known = merged.get(key_of(call))
            if known is None or known.count < call.count:
                merged[key_of(call)] = call
    return list(merged.values())

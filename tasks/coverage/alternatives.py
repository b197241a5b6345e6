"""Other implementations that the model brings itself: what each would leave open on the target."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.errors import SkeletonError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.workaround import Chosen, with_chosen

from .impact import shares
from .needs import Need, needs_of, request_of
from .record import Alternative
from .statuses import RUNS, State

_ATTENTION = ("sdpa", "eager", "flex_attention")
_EXPERTS = ("grouped_mm", "batched_mm", "eager")
"""Implementations by transformers' names that need no further package; the others (flash attention, DeepGEMM,
SonicMoE) are kernels of one vendor, which the list of kernels names."""

_LISTED = 12
_LARGEST = (math.inf, 0, 0.0, 0, 0)

CaptureAll = Callable[[Sequence[CaptureRequest]], Sequence[Capture]]
"""Captures the model in several ways."""


@dataclass(frozen=True)
class Judged:
    """One combination, judged.

    Attributes:
        options: of the target, beyond those that it names.
        capture: of the model with them; None where it could not be captured.
        states: of the rows that it needs.
        reason: why it could not be captured.
    """

    options: Mapping[str, str]
    capture: Capture | None
    states: Sequence[State] = ()
    reason: str = ""

    @property
    def open(self) -> Sequence[State]:
        """What the target does not run, or nobody has tried."""
        return [state for state in self.states if state.status not in RUNS]

    @property
    def calls(self) -> Sequence[OperatorCall]:
        """All that it makes."""
        return [call for state in self.states for call in state.need.calls]

    def risk(self, whole: Sequence[OperatorCall]) -> float:
        """Work in what is open, held against that of other calls."""
        return _weight(self.open, whole)

    def size(self, whole: Sequence[OperatorCall]) -> tuple[float, int, float, int, int]:
        """The gap: work and number of what is open, then of what runs in a roundabout way.

        Args:
            whole: calls whose work counts as one.
        """
        dear = [state for state in self.states if state.status in RUNS and state.status != "native"]
        return (
            self.risk(whole),
            len(self.open),
            _weight(dear, whole),
            len(dear),
            len(self.options),
        )


def _weight(states: Sequence[State], whole: Sequence[OperatorCall]) -> float:
    calls = [call for state in states for call in state.need.calls]
    return round(sum(shares(calls, against=whole).values()), 6)


def combinations(capture: Capture, spec: TargetSpec) -> list[Mapping[str, str]]:
    """What may be added to a target's options, nothing itself left out.

    Implementations that the target names already stay; experts are varied where the model has some.
    """
    chosen = {call.name: call.implementation for call in capture.functions if call.implementation}
    choices: dict[str, Sequence[str]] = {}
    for option, function, known in (("attn", "attention", _ATTENTION), ("experts", "experts", _EXPERTS)):
        if option not in spec.options and function in chosen:
            choices[option] = [name for name in known if name != chosen[function]]
    picked = [[{}, *({option: name} for name in names)] for option, names in choices.items()]
    found = [
        {key: value for part in parts for key, value in part.items()} for parts in itertools.product(*picked)
    ]
    return [options for options in found if options]


def captured(
    options: Sequence[Mapping[str, str]], spec: TargetSpec, capture_all: CaptureAll
) -> list[tuple[Mapping[str, str], Capture | None, str]]:
    """Each combination with its capture, or with the reason why there is none."""
    requests = [request_of(with_options(spec, one)) for one in options]
    try:
        captures = capture_all(requests)
    except SkeletonError as error:
        return [(one, None, error.message) for one in options]
    found: list[tuple[Mapping[str, str], Capture | None, str]] = []
    for one, capture in zip(options, captures, strict=True):
        why = capture.unbuilt or next((anomaly.message for anomaly in capture.undecided), "")
        found.append((one, None if why else capture, why))
    return found


def needs_with(capture: Capture, spec: TargetSpec, options: Mapping[str, str]) -> list[Need]:
    """The rows that the model needs with these options."""
    return needs_of(capture, with_options(spec, options))


def with_options(spec: TargetSpec, options: Mapping[str, str]) -> TargetSpec:
    """The target with more options; ways around add up."""
    return with_chosen(spec, [Chosen(id="", options=options)])


def smallest(judged: Sequence[Judged]) -> Judged:
    """The one with the smallest gap, its work held against that of the first.

    Of equals the one with the fewest options, then the first.
    """
    whole = judged[0].calls
    return min(judged, key=lambda one: one.size(whole) if one.capture is not None else _LARGEST)


def entry(one: Judged, first: Judged, *, chosen: bool, checked: str) -> Alternative:
    """The record's entry of a combination, its work held against that of the first, as for the choice."""
    by_status = {
        name: tuple(dict.fromkeys(state.need.example.op for state in one.states if wanted(state.status)))
        for name, wanted in (
            ("gaps", lambda status: status not in (*RUNS, "unknown")),
            ("rebuilt", lambda status: status == "decomposed"),
            ("unknown", lambda status: status == "unknown"),
        )
    }
    return Alternative(
        options=dict(one.options),
        operators=len({state.need.example.op for state in one.states}),
        gaps=by_status["gaps"][:_LISTED],
        rebuilt=by_status["rebuilt"][:_LISTED],
        unknown=by_status["unknown"][:_LISTED],
        impact=one.risk(first.calls),
        chosen=chosen,
        checked=checked,
        reason=one.reason,
    )


def name_of(options: Mapping[str, str]) -> str:
    """How the options are written in a target: `attn=eager&experts=batched_mm`."""
    return "&".join(f"{key}={value}" for key, value in sorted(options.items()))

"""Trials in batches: references from one worker, the calls themselves from the target's."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from day0.adapters.base.errors import WorkerCrashed, WorkerError, WorkerUnusable
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Answer, Target

from ..confirmed import confirmed
from ..operator_reference import Reference
from ..thresholds import SLOW_TIMINGS
from .plan_probe import Trial, composite
from .reference_worker import Expected
from .replay import Outcome, is_slow, judge, slow


def attempt(target: Target, trials: Sequence[Trial], expected: Sequence[Expected]) -> list[Outcome]:
    """What becomes of each trial, in order.

    A worker that dies or never answers is a result; the next call finds a fresh one.

    Args:
        target: to try.
        trials: what to try.
        expected: what the reference worker answered to each.

    Raises:
        WorkerUnusable: no worker starts at all.
        UnsupportedError: the target runs no single operators.
    """
    ready = [place for place, one in enumerate(expected) if _decides(trials[place], one)]
    outcomes = {
        place: _untold(trials[place], one) for place, one in enumerate(expected) if place not in set(ready)
    }
    calls = [_call(expected[place]) for place in ready]
    inputs = [expected[place].inputs for place in ready]
    answers = _answers(target, calls, inputs)
    for place, call, tensors, answer in zip(ready, calls, inputs, answers, strict=True):
        reference = expected[place].reference
        assert reference is not None, "only calls with a reference are run"
        if isinstance(answer, WorkerCrashed) and len(calls) == 1:
            answer = _again(target, call, tensors)
        outcomes[place] = _outcome(target, trials[place], call, tensors, reference, answer)
    return [outcomes[place] for place in range(len(trials))]


def _answers(
    target: Target, calls: Sequence[OperatorCall], inputs: Sequence[Sequence[torch.Tensor]]
) -> list[Answer | WorkerError]:
    """What the target gives; composite operators such as attention are asked for one by one.

    In a graph with others a compiler may take them apart where alone it keeps them whole: OpenVINO runs
    attention with grouped heads in a graph of many operators and fails on it alone, as it does in a model.
    """
    alone = {place for place, call in enumerate(calls) if composite(call)}
    shared = [place for place in range(len(calls)) if place not in alone]
    given = target.run_ops([calls[at] for at in shared], [inputs[at] for at in shared]) if shared else ()
    found = dict(zip(shared, given, strict=True))
    found |= {place: _again(target, calls[place], inputs[place]) for place in alone}
    return [found[place] for place in range(len(calls))]


def _outcome(
    target: Target,
    trial: Trial,
    call: OperatorCall,
    tensors: Sequence[torch.Tensor],
    reference: Reference,
    answer: Answer | WorkerError,
) -> Outcome:
    outcome = judge(target.spec, trial, call, reference, answer)
    if outcome.status != "native" or isinstance(answer, WorkerError) or not is_slow(answer, reference):
        return outcome
    for _ in range(SLOW_TIMINGS - 1):  # one that is quick tells: the others waited for something else
        again = _again(target, call, tensors)
        if not (isinstance(again, Answer) and is_slow(again, reference)):
            return outcome
    return slow(outcome)


def _decides(trial: Trial, one: Expected) -> bool:
    """Whether there is something to hold the target against; a changed attribute may be no valid call."""
    if one.call is None or one.reference is None:
        return False
    return not trial.attribute or one.reference.like is not None


def _again(target: Target, call: OperatorCall, tensors: Sequence[torch.Tensor]) -> Answer | WorkerError:
    """The call alone; a death is believed when it happens twice."""
    try:
        return confirmed(lambda: target.run_op(call, tensors))
    except WorkerUnusable:
        raise
    except WorkerError as error:
        return error


def _call(one: Expected) -> OperatorCall:
    assert one.call is not None, "only calls with a reference are run"
    return one.call


def _untold(trial: Trial, one: Expected) -> Outcome:
    return Outcome(trial, one.call or trial.asked.call, "unknown", one.reason)

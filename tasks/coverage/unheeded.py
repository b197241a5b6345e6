"""Attributes that a target does not heed: its output is right for the value that was there before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from day0.adapters.base.operator_call import OperatorCall

from .comparison import compare
from .learnt import NO_EFFECT
from .reference_worker import Asked, ReferenceWorker
from .replay import Outcome


def explained(
    references: ReferenceWorker, outcomes: Sequence[Outcome], examples: Mapping[str, OperatorCall]
) -> list[Outcome]:
    """The outcomes; of those that are wrong under a changed attribute it is said whether it had an effect.

    Args:
        references: asked for what the unchanged call gives.
        outcomes: of trials.
        examples: row key -> the unchanged call.
    """
    return [_explained(references, one, examples) if _asks(one, examples) else one for one in outcomes]


def _asks(outcome: Outcome, examples: Mapping[str, OperatorCall]) -> bool:
    return bool(outcome.trial.attribute and outcome.outputs and outcome.trial.key in examples)


def _explained(
    references: ReferenceWorker, outcome: Outcome, examples: Mapping[str, OperatorCall]
) -> Outcome:
    trial = outcome.trial
    (unchanged,) = references.ask([Asked(examples[trial.key], trial.asked.seed, trial.asked.spread)])
    if unchanged.reference is None:
        return outcome
    if not compare(outcome.call.op, outcome.outputs, unchanged.reference).agrees:
        return replace(outcome, reason=f"with {trial.attribute} = {trial.value}: {outcome.reason}")
    return replace(outcome, reason=f"the attribute {trial.attribute} {NO_EFFECT}: {outcome.reason}")

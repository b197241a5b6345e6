"""Outcomes as registry rows: the first call of a row, and what further ones add to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import digest
from day0.adapters.registries.blame import owner_of
from day0.adapters.registries.row import Constraint, RegistryRow, mark_of
from day0_worker.operators import resolve

from .replay import Outcome

_WORST_LAST = ("native", "slow", "fallback", "wrong", "hang", "crash")
_RUNS = ("native", "slow", "fallback")
_MOST_CONSTRAINTS = 12


@dataclass(frozen=True)
class Setting:
    """What all rows of one probe share.

    Attributes:
        spec: of the target.
        fingerprint: digest of the target's.
        date: of the probe, or empty.
        generator: of the calls, see `RegistryRow`.
    """

    spec: TargetSpec
    fingerprint: str
    date: str = ""
    generator: str = "captured"


def new_row(outcome: Outcome, setting: Setting) -> RegistryRow:
    """The row that an example's outcome makes."""
    call, captured = outcome.call, outcome.trial.asked.call
    sound = outcome.status in _RUNS
    return RegistryRow(
        op=captured.op,
        dtypes=captured.dtypes,
        ranks=[len(shape) for shape in captured.shapes],
        result_dtype=captured.result_dtype,
        variant=captured.variant,
        status=outcome.status,
        reason=outcome.reason,
        layer=outcome.layer,
        owner=owner_of(setting.spec.stack, setting.spec.device, outcome.layer),
        error=outcome.error,
        tolerance=outcome.tolerance,
        shapes=call.shapes,
        probe=call.signature,
        seed=outcome.trial.asked.seed,
        spread=outcome.trial.asked.spread,
        failing=failing_call(outcome),
        tried=[mark_of(captured.signature)] if sound else (),
        checks=["example"],
        schema_hash=schema_hash(captured.op),
        generator=setting.generator,
        date=setting.date,
        log=outcome.log,
        fingerprint=setting.fingerprint,
    )


def failing_call(outcome: Outcome) -> OperatorCall | None:
    """The call of an outcome that is not sound, without what it is to a model."""
    if outcome.status in ("native", "unknown"):
        return None
    call = outcome.call
    return OperatorCall(
        op=call.op,
        args=call.args,
        kwargs=call.kwargs,
        dtypes=call.dtypes,
        shapes=call.shapes,
        attributes=call.attributes,
        variant=call.variant,
    )


def schema_hash(op: str) -> str:
    """Changes whenever an operator's schema does."""
    return digest(str(resolve(op)._schema))[:16]


def refusal_of(outcome: Outcome) -> Constraint:
    """A call that was refused while others of its row run."""
    mark = mark_of(outcome.trial.asked.call.signature)
    return Constraint(shapes=outcome.call.shapes, reason=outcome.reason, mark=mark)


def with_refusals(row: RegistryRow, refused: Sequence[Outcome]) -> RegistryRow:
    """The row with calls that were refused."""
    return _constrained(row, [refusal_of(outcome) for outcome in refused])


def joined(
    known: RegistryRow | None, outcome: Outcome, refused: Sequence[Outcome], setting: Setting
) -> RegistryRow:
    """The row after its first outcome.

    Args:
        known: what the row said before; only a row that refuses some calls is added to.
        outcome: of the call that decides.
        refused: calls that were refused before it, while others of the row were left to try.
        setting: of the probe.
    """
    row = new_row(outcome, setting)
    if known is None or not known.constraints:
        return row if outcome in refused else with_refusals(row, refused)
    if row.status not in _RUNS:
        return with_refusals(known, refused) if refused else row
    return with_refusals(known.model_copy(update={"tried": sorted({*known.tried, *row.tried})}), refused)


def extended(row: RegistryRow, outcomes: Sequence[Outcome], setting: Setting) -> RegistryRow:
    """The row with what further trials showed.

    A wrong value, a crash and a hang speak against the row. What the stack refuses constrains it, and so does
    what no model asks for: infinities, NaN, and attributes that it heeds but gets wrong.

    Args:
        row: whose example was sound.
        outcomes: of trials of this row; what could not be compared adds nothing.
        setting: of the probe.
    """
    for outcome in outcomes:
        if outcome.status == "native":
            row = _confirmed(row, outcome)
        elif outcome.status != "unknown":
            row = _against(row, outcome, setting)
    return row.model_copy(update={"date": setting.date or row.date})


def _confirmed(row: RegistryRow, outcome: Outcome) -> RegistryRow:
    changed: dict[str, object] = {}
    if outcome.trial.check == "signatures":
        marks = {*row.tried, mark_of(outcome.trial.asked.call.signature)}
        changed["tried"] = sorted(marks)
    if _share(outcome.error, outcome.tolerance) > _share(row.error, row.tolerance):
        changed |= {"error": outcome.error, "tolerance": outcome.tolerance}
    return row.model_copy(update=changed)


def _against(row: RegistryRow, outcome: Outcome, setting: Setting) -> RegistryRow:
    trial = outcome.trial
    if trial.check == "signatures" and outcome.refused:
        return with_refusals(row, [outcome])
    if trial.check == "attributes" and outcome.status in ("missing", "double_fault", "slow", "fallback"):
        return _constrained(row, [_attribute(outcome)])
    if outcome.status == "wrong" and not _counts(row, outcome):
        return _constrained(row, [_attribute(outcome)])
    if outcome.status not in _WORST_LAST or _worse(row.status, outcome.status):
        return row
    about = f"{trial.attribute} = {trial.value}: " if trial.attribute and outcome.status != "wrong" else ""
    return row.model_copy(
        update={
            "status": outcome.status,
            "reason": about + outcome.reason,
            "layer": outcome.layer,
            "owner": owner_of(setting.spec.stack, setting.spec.device, outcome.layer),
            "error": outcome.error,
            "tolerance": outcome.tolerance,
            "shapes": outcome.call.shapes,
            "probe": outcome.call.signature,
            "seed": outcome.trial.asked.seed,
            "spread": outcome.trial.asked.spread,
            "failing": failing_call(outcome),
            "log": outcome.log,
        }
    )


NO_EFFECT = "has no effect"


def _counts(row: RegistryRow, outcome: Outcome) -> bool:
    """Whether a wrong value speaks against the row itself."""
    if outcome.trial.check == "ranges":
        return outcome.trial.asked.spread != "odd"
    if outcome.trial.check == "attributes":
        return NO_EFFECT in outcome.reason and outcome.call.variant == row.variant
    return True


def _attribute(outcome: Outcome) -> Constraint:
    trial = outcome.trial
    attributes = {trial.attribute: trial.value} if trial.attribute else {}
    return Constraint(attributes=attributes, reason=f"{outcome.status}: {outcome.reason}")


def _constrained(row: RegistryRow, more: Sequence[Constraint]) -> RegistryRow:
    if not more:
        return row
    kept = list(row.constraints)
    kept += [one for one in more if one not in kept]
    return row.model_copy(update={"constraints": kept[:_MOST_CONSTRAINTS]})


def _worse(status: str, other: str) -> bool:
    known = _WORST_LAST.index(status) if status in _WORST_LAST else len(_WORST_LAST)
    return known >= _WORST_LAST.index(other)


def _share(error: object, tolerance: float | None) -> float:
    if not isinstance(error, float | int):
        return -1.0
    return float(error) / tolerance if tolerance else 0.0


def own_row(outcome: Outcome, row: RegistryRow, setting: Setting) -> RegistryRow | None:
    """The row of a call whose changed attribute chooses another implementation than the example's."""
    if not outcome.trial.attribute or outcome.call.variant == row.variant or outcome.status == "unknown":
        return None
    return new_row(outcome, setting)


def ran_elsewhere(row: RegistryRow, others: Sequence[RegistryRow], calls: Sequence[OperatorCall]) -> bool:
    """Whether a row of refused shapes is one of an operator that runs with other ranks in the same dtypes."""
    return bool(calls) and any(
        other.op == row.op
        and other.fingerprint == row.fingerprint
        and set(other.dtypes) == set(row.dtypes)
        and other.status in _RUNS
        for other in others
    )

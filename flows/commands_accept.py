"""`day0 baseline accept`, `baseline show` and `waive`: what a person decides."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from day0.adapters.base.run_store import RunStore
from day0.tasks.finding import Waiver

from .baseline import Baseline, accept_run, list_baselines
from .flags import StoreFlags, settings_of
from .terminal import printable, stdout_for_data, write_json
from .waivers import add_waiver

_DEFAULT = StoreFlags()


def accept(
    run: str | None = None,
    /,
    *,
    model: str | None = None,
    target: str | None = None,
    owner: str = "",
    flags: StoreFlags = _DEFAULT,
) -> int:
    """Accept a run as the baseline of its model on each of its targets.

    Args:
        run: Id of the run; the newest where it is left out.
        model: Take the newest run of this model.
        target: Accept this target only.
        owner: Who accepts; the login name where it is left out.
        flags: Shared flags.
    """
    store = RunStore(settings_of(flags).store)
    with stdout_for_data() as data:
        _tell(data, accept_run(store, run, model=model, target=target, owner=owner), flags)
    return 0


def show(*, flags: StoreFlags = _DEFAULT) -> int:
    """Show which runs are accepted.

    Args:
        flags: Shared flags.
    """
    with stdout_for_data() as data:
        _tell(data, list_baselines(RunStore(settings_of(flags).store)), flags)
    return 0


def waive(finding: str, /, *, owner: str, reason: str, expires: date, flags: StoreFlags = _DEFAULT) -> int:
    """Accept a finding: it then counts as a warning and is shown as waived.

    Args:
        finding: Id of the finding, 12 hexadecimal digits, as the report shows it.
        owner: Who accepts it.
        reason: Why.
        expires: Last day on which it holds, e.g. 2027-01-31.
        flags: Shared flags.
    """
    store = RunStore(settings_of(flags).store)
    waiver = Waiver(finding=finding, owner=owner, reason=reason, expires=expires)
    with stdout_for_data() as data:
        waivers = add_waiver(store, waiver, datetime.now(UTC).date())
        if flags.json:
            write_json(data, [each.model_dump(mode="json") for each in waivers])
        else:
            data.write(f"{finding} is accepted by {printable(owner)} until {expires}: {printable(reason)}\n")
    return 0


def _tell(data: Any, baselines: Sequence[Baseline], flags: StoreFlags) -> None:
    rows = [
        {
            "model": each.model,
            "target": each.target,
            "run": each.report.run,
            "revision": each.report.revision,
            "verdict": each.report.verdict.value,
            "accepted": each.accepted,
            "owner": each.owner,
        }
        for each in baselines
    ]
    if flags.json:
        write_json(data, rows)
        return
    for row in rows:
        data.write(
            printable(
                "{model} on {target}: run {run}, {verdict}, accepted {accepted} by {owner}\n".format(**row)
            )
        )
    if not rows:
        data.write("Nothing is accepted yet.\n")

"""A re-run held against the accepted baseline: the same stages, all that touches the target done again."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Value
from day0.reports.model import Report
from day0.reports.regression import Regression, judge_regression
from day0.reports.store import read_report
from day0.reports.strict_json import strict_json
from day0.tasks.job import RunOptions
from day0.tasks.verdict import Verdict, worst

from .adapt import walk
from .artifacts import plain_text
from .baseline import read_baseline
from .interrupts import still_ends_on_signals
from .settings import load_settings, run_options
from .task_runner import chosen_runner

REGRESSION_STATE = "Regression"
"""Name of the end state after a regression; an automation can wait for `prefect.flow-run.Regression`."""
_MOST_LINES = 30


class Judgement(Value):
    """One target's re-run against its baseline.

    Attributes:
        target: the target's text.
        baseline: id of the accepted run; empty where nothing was accepted.
        regression: what changed; None without a baseline.
    """

    target: str
    baseline: str
    regression: Regression | None

    @property
    def verdict(self) -> Verdict:
        """`fail` for a regression, `unverified` where it could not be decided, else `pass`."""
        return Verdict.UNVERIFIED if self.regression is None else self.regression.verdict


class Outcome(Value):
    """What a re-run came to.

    Attributes:
        run: id of the re-run.
        verdict: worst over the targets.
        targets: one a target.
    """

    run: str
    verdict: Verdict
    targets: Sequence[Judgement]


@flow(name="regress", flow_run_name="regress-{model}", task_runner=chosen_runner())
def regress(
    model: str,
    targets: Sequence[str],
    revision: str | None = None,
    store: str | None = None,
    options: RunOptions | None = None,
    command: str = "",
    report_url: str | None = None,
) -> Outcome:
    """Runs the stages again and holds each target against its baseline.

    Inventory and reference states are reused where the release is the same; whatever touches the target
    runs again.

    Args:
        model: as for `adapt`.
        targets: as for `adapt`.
        revision: as for `adapt`; None follows the model's main branch, so that a new revision is found.
        store: that has the baselines.
        options: as for `adapt`.
        command: as for `adapt`.
        report_url: as for `adapt`.
    """
    settings = load_settings({"store": store, "report_url": report_url})
    fresh = (options or run_options(settings)).model_copy(update={"fresh": True})
    with still_ends_on_signals():
        run = walk(model, targets, revision, fresh, settings, command)
        outcome = judge(settings.store, run)
    name = REGRESSION_STATE if outcome.verdict is Verdict.FAIL else "Completed"
    state: State[Outcome] = Completed(name=name, message=_headline(outcome), data=outcome)
    return state  # type: ignore[return-value]  # Prefect hands the caller the data of a returned state


@task(cache_policy=NO_CACHE)
def judge(store: str, run: str) -> Outcome:
    """Holds a run against the baselines; writes `runs/RUN/regression.json` and leaves an artifact."""
    opened = RunStore(store)
    report = read_report(opened, run)
    judgements = [_judge_target(opened, report, result.target) for result in report.targets]
    outcome = Outcome(run=run, verdict=worst(each.verdict for each in judgements), targets=judgements)
    opened.write(f"runs/{run}/regression.json", strict_json(outcome).encode())
    create_markdown_artifact(_markdown(outcome), key="day0-regression", description=_headline(outcome))
    return outcome


def _judge_target(store: RunStore, report: Report, target: str) -> Judgement:
    baseline = read_baseline(store, report.model, target)
    if baseline is None:
        return Judgement(target=target, baseline="", regression=None)
    result = next(result for result in report.targets if result.target == target)
    alone = report.model_copy(update={"targets": (result,)})
    found = judge_regression(baseline.report, alone, store)
    return Judgement(target=target, baseline=baseline.report.run, regression=found)


def judgement_lines(judgement: Judgement) -> list[str]:
    """A target's judgement as lines for a person, regressions first and marked."""
    if judgement.regression is None:
        return [f"{judgement.target}: nothing is accepted yet; run `day0 baseline accept`, then this again."]
    found = judgement.regression
    lines = [f"{judgement.target} against run {judgement.baseline}: {found.headline}"]
    lines += [
        f"  {'!' if item.regression else ' '} {item.category.replace('_', ' ')}: {item.change.text}"
        for item in found.changes[:_MOST_LINES]
    ]
    if len(found.changes) > _MOST_LINES:
        lines.append(f"    ... and {len(found.changes) - _MOST_LINES} more (see --json)")
    return lines


def _headline(outcome: Outcome) -> str:
    return " ".join(
        judgement.regression.headline if judgement.regression else f"{judgement.target} has no baseline."
        for judgement in outcome.targets
    )


def _markdown(outcome: Outcome) -> str:
    parts = [f"## Re-run {outcome.run}: {outcome.verdict.value}"]
    for judgement in outcome.targets:
        first, *rest = judgement_lines(judgement)
        parts += ["", plain_text(first), "", *(f"- {plain_text(line.strip())}" for line in rest)]
    return "\n".join(parts)

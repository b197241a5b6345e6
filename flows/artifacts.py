"""What a run leaves in Prefect: a short text a stage, one table of findings, the report's link."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from day0.adapters.base.target_spec import TargetSpec
from day0.reports.model import Report
from day0.tasks.finding import Finding
from day0.tasks.job import RecordRef

_MOST_ROWS = 50
_SEVERITIES = ("error", "warning", "info")


def artifact_key(*parts: str) -> str:
    """An artifact's key: lower-case letters, digits and dashes only."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(part for part in parts if part).lower()).strip("-")


def leave_stage(reference: RecordRef, model: str) -> None:
    """A few lines on one finished stage, attached to its task run."""
    on = f" on `{reference.target}`" if reference.target else ""
    how = "taken from the run store" if reference.reused else "computed in this run"
    create_markdown_artifact(
        f"**{reference.stage}{on}: {reference.verdict.value}**\n\n"
        f"Model `{plain_text(model)}`. {how.capitalize()}. Record `{reference.key}`.",
        key=_stage_key(reference),
        description=f"{reference.stage}: {reference.verdict.value}",
    )


def leave_report(report: Report, html_path: str, base_url: str = "") -> None:
    """The verdict with the three questions, the worst findings, and where the page lies.

    Args:
        report: of the run.
        html_path: of the page in the run store.
        base_url: of a site that serves the run store; empty: a `file:` link.
    """
    create_markdown_artifact(
        _summary(report), key="day0-verdict", description=f"verdict: {report.verdict.value}"
    )
    rows = _rows(report)
    if rows:
        create_table_artifact(rows, key="day0-findings", description=f"worst {len(rows)} findings")
    link = f"{base_url.rstrip('/')}/runs/{quote(report.run)}/report.html" if base_url else _uri(html_path)
    create_link_artifact(link, link_text=f"report of run {report.run}", key="day0-report", description=link)


def _stage_key(reference: RecordRef) -> str:
    return artifact_key(reference.stage, TargetSpec.parse(reference.target).slug if reference.target else "")


def _uri(path: str) -> str:
    return path if "://" in path else Path(path).absolute().as_uri()


def _summary(report: Report) -> str:
    lines = [f"## {plain_text(report.model)}: {report.verdict.value}", "", f"Revision `{report.revision}`."]
    for target in report.targets:
        lines += ["", f"### `{target.target}`: {target.verdict.value}", ""]
        lines += [
            f"- {each.question} **{each.answer}**. {plain_text(each.evidence)}" for each in target.questions
        ]
    return "\n".join(lines)


def _rows(report: Report) -> list[dict[str, str]]:
    found: list[tuple[str, Finding]] = [("", finding) for finding in report.inventory.findings]
    found += [(target.target, finding) for target in report.targets for finding in target.findings]
    found.sort(key=lambda pair: _SEVERITIES.index(pair[1].severity))
    return [_row(target, finding) for target, finding in found[:_MOST_ROWS]]


def _row(target: str, finding: Finding) -> dict[str, str]:
    return {
        "target": target,
        "code": finding.code,
        "severity": finding.severity,
        "subject": plain_text(finding.subject.name),
        "message": plain_text(finding.message),
    }


def plain_text(text: str) -> str:
    """Names come from the release: nothing in them may act as markup."""
    return re.sub(r"[`<>|\[\]\\]", " ", " ".join(text.split()))

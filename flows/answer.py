"""What a person sees of a run: verdict and three questions per target, what both say, where the page is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from day0.reports.model import Report, TargetResult
from day0.tasks.finding import Finding
from day0.tasks.verdict import Verdict

from .terminal import printable

_STYLE = {
    Verdict.PASS: "bold green",
    Verdict.WARN: "bold yellow",
    Verdict.UNVERIFIED: "bold cyan",
    Verdict.BLOCKED: "bold magenta",
    Verdict.FAIL: "bold red",
}
_ANSWER_STYLE = {"yes": "green", "no": "red", "partly": "yellow", "unverified": "cyan"}
_MOST_FINDINGS = 5
_ORDER = ("error", "warning", "info")


def print_answer(stream: TextIO, report: Report, page: str) -> None:
    """Prints the answer to a run; colours only where the stream is a terminal."""
    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in _lines(report):
        console.print(line)
    console.print(Text(f"report: {printable(page)}"))
    console.print(Text(f"run:    {report.run}"))


def _lines(report: Report) -> Iterator[Text]:
    yield Text.assemble(
        (printable(report.model), "bold"),
        f" at {report.revision[:12]}: ",
        (report.verdict.value, _STYLE[report.verdict]),
    )
    yield from _findings("", report.inventory.findings)
    for result in report.targets:
        yield Text()
        yield from _target(result)
    yield Text()


def _target(result: TargetResult) -> Iterator[Text]:
    yield Text.assemble((result.target, "bold"), ": ", (result.verdict.value, _STYLE[result.verdict]))
    for each in result.questions:
        answer = (f"{each.answer:<10}", _ANSWER_STYLE.get(each.answer, ""))
        yield Text.assemble(f"  {each.question:<28} ", answer, f" {printable(each.evidence)}")
    numerics = result.stages.numerics
    if numerics is not None and numerics.facts.says is not None:
        says = numerics.facts.says
        yield Text(f"  {says.prompt!r} is continued")
        yield Text(f"    by the reference with {says.reference!r}")
        yield Text(f"    by the target with    {says.target!r}")
    yield from _findings("  ", result.findings)


def _findings(indent: str, findings: Sequence[Finding]) -> Iterator[Text]:
    told = [finding for finding in findings if finding.verdict is not Verdict.PASS]
    told.sort(key=lambda finding: _ORDER.index(finding.severity))
    for finding in told[:_MOST_FINDINGS]:
        waived = " (waived)" if finding.waiver else ""
        subject = printable(finding.subject.name)
        yield Text.assemble(
            indent,
            (finding.code, _STYLE[finding.verdict]),
            f"{waived} {subject}: {printable(finding.message)}",
        )
    if len(told) > _MOST_FINDINGS:
        yield Text(f"{indent}... and {len(told) - _MOST_FINDINGS} more in the report")

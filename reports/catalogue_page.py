"""Generates docs/findings.md from the catalogue: `python -m day0.reports.catalogue_page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from day0.tasks.catalogue import CATALOGUE, Entry

PAGE = Path("docs/findings.md")
_STAGES = {
    "INV": "Inventory",
    "COV": "Coverage",
    "MIN": "Minimal run",
    "NUM": "Numerics",
    "PLN": "Plan",
    "SCL": "Scale",
}
_HEAD = """# Findings

Generated from `tasks/catalogue/` by `make docs`; do not edit.

A finding is one fact a person may have to act on. Its code never changes its meaning; its id, a digest of
code and subject, is the same in every run, so that it can be waived (`day0 waive`) and followed from run to
run. An error makes the verdict `fail` and a warning `warn`, unless the entry says that something could not be
decided.
"""


def catalogue_page() -> str:
    """The whole page as Markdown, one section for each code."""
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    for prefix, stage in _STAGES.items():
        entries = [entry for code, entry in sorted(CATALOGUE.items()) if code.startswith(prefix)]
        if not entries:
            continue
        yield f"\n## {stage}\n"
        for entry in entries:
            yield from _section(entry)


def _section(entry: Entry) -> Iterator[str]:
    effect = {"error": "fail", "warning": "warn", "info": "pass"}[entry.severity]
    yield f"\n### {entry.code}: {entry.title}\n\n"
    yield f"*{entry.severity}*, verdict `{entry.undecided or effect}`\n\n"
    yield f"{entry.meaning.strip()}\n\n"
    yield f"**Remedy.** {entry.remedy.strip()}\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page; with `--check` only says by its exit status whether the committed one holds."""
    wanted = catalogue_page()
    if "--check" not in arguments:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write(f"{PAGE} does not match the catalogue; run `make docs`.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

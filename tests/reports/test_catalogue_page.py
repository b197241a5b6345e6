from __future__ import annotations

from pathlib import Path

import pytest

from day0.reports import catalogue_page
from day0.tasks.catalogue import CATALOGUE

ROOT = Path(__file__).parent.parent.parent


def test_the_committed_page_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert committed == catalogue_page.catalogue_page(), "run `make docs`"


def test_every_code_has_its_section() -> None:
    page = catalogue_page.catalogue_page()
    assert [code for code in CATALOGUE if f"\n### {code}: " not in page] == []


def test_check_says_by_its_exit_status_whether_the_page_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert catalogue_page.main(["--check"]) == 1
    assert catalogue_page.main([]) == 0
    assert catalogue_page.main(["--check"]) == 0

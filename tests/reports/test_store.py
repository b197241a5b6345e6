from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NoReturn

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.reports.as_json import as_json
from day0.reports.index import run_lines, write_index
from day0.reports.store import list_runs, read_report, write_report
from day0.reports.strict_json import strict_json
from support.sample_report import sample_report


def no_literal(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def test_a_written_report_reads_back_equal(tmp_path: Path) -> None:
    store, report = RunStore(tmp_path), sample_report()
    place = write_report(store, report)
    assert strict_json(read_report(store, report.run)) == strict_json(report)
    assert Path(place.html_path).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(Path(place.json_path).read_text(), parse_constant=no_literal)["run"] == report.run


def test_no_number_leaves_json(tmp_path: Path) -> None:
    report = sample_report()
    scale = report.targets[0].stages.scale
    assert scale is not None
    seen = scale.observations.model_copy(update={"device_flops": math.nan, "seconds": math.inf})
    stages = report.targets[0].stages.model_copy(
        update={"scale": scale.model_copy(update={"observations": seen})}
    )
    changed = report.model_copy(update={"targets": [report.targets[0].model_copy(update={"stages": stages})]})
    shape = json.loads(strict_json(as_json(changed)), parse_constant=no_literal)
    assert shape["stages"]["scale"]["observations"]["device_flops"] == "NaN"
    assert shape["stages"]["scale"]["observations"]["seconds"] == "Infinity"
    store = RunStore(tmp_path)
    write_report(store, changed)
    again = read_report(store, changed.run).targets[0].stages.scale
    assert again is not None
    assert math.isnan(again.observations.device_flops)


def test_runs_are_listed_newest_first_and_linked(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for run, created in (("a", "2026-11-28T09:00:00Z"), ("b", "2026-11-29T09:00:00Z")):
        write_report(store, sample_report().model_copy(update={"run": run, "created": created}))
    (tmp_path / "runs" / "half-written").mkdir()
    assert [summary.run for summary in list_runs(store)] == ["b", "a"]
    assert run_lines(list_runs(store))[0].startswith("b  fail")
    page = Path(write_index(store)).read_text(encoding="utf-8")
    assert page.index('href="runs/b/report.html"') < page.index('href="runs/a/report.html"')
    assert "half-written" not in page


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    assert run_lines(list_runs(RunStore(tmp_path))) == ["No run has a report yet."]


@pytest.mark.parametrize("run", ["", "..", "a/b", "nothing"])
def test_a_run_that_is_not_there_is_one_sentence(tmp_path: Path, run: str) -> None:
    with pytest.raises(InputError, match="E130"):
        read_report(RunStore(tmp_path), run)


def test_a_foreign_report_is_one_sentence(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.write("runs/x/report.json", b'{"report_schema": 99}')
    with pytest.raises(InputError, match="E136"):
        read_report(store, "x")

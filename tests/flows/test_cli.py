from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.flows import cli
from day0.reports.assemble import assemble
from day0.reports.model import Stages
from day0.reports.store import write_report
from support.local_hub import LocalHub
from support.stand_in_stages import small_inventory

SENTENCE = re.compile(r"day0: [^\n]+ \[E\d{3}\]\.[^\n]*\n")
TARGET = ("--target", "eager@cpu/bf16")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_runs(count: int) -> list[str]:
    store, runs = RunStore(".day0"), [f"2026010{number}T000000Z-a" for number in range(1, count + 1)]
    for number, run in enumerate(runs):
        report = assemble(run, "org/name", small_inventory(revision=f"r{number}"), {"eager@cpu": Stages()})
        write_report(store, report.model_copy(update={"created": f"2026-01-0{number + 1}T00:00:00Z"}))
    return runs


def folder(name: str, **files: str) -> str:
    Path(name).mkdir()
    for file, text in files.items():
        Path(name, file.replace("_", ".")).write_text(text)
    return f"./{name}"


@pytest.mark.parametrize(
    ("prepare", "arguments", "code"),
    [
        (lambda: None, ["adapt", "./missing", *TARGET], "E10"),
        (lambda: folder("empty"), ["adapt", "./empty", *TARGET], "E102"),
        (lambda: folder("broken", config_json="{"), ["adapt", "./broken", *TARGET], "E103"),
        (lambda: folder("fine", config_json="{}"), ["adapt", "./fine", "--target", "nope@cpu"], "E111"),
        (lambda: folder("fine", config_json="{}"), ["adapt", "./fine", "--target", "EAGER CPU"], "E110"),
        (
            lambda: folder("fine", config_json="{}"),
            ["adapt", "./fine", *TARGET, "--trust-remote-code"],
            "E152",
        ),
        (lambda: folder("fine", config_json="{}"), ["adapt", "./fine", *TARGET, "--memory", "much"], "E150"),
        (lambda: None, ["inventory", "./missing"], "E10"),
        (lambda: None, ["compare", "./missing", *TARGET], "E10"),
        (lambda: None, ["regress", "./missing", *TARGET], "E10"),
        (lambda: None, ["report"], "E137"),
        (lambda: None, ["report", "nope"], "E130"),
        (lambda: None, ["diff"], "E137"),
        (lambda: None, ["baseline", "accept"], "E159"),
        (
            lambda: None,
            ["waive", "0123456789ab", "--owner", "a", "--reason", "b", "--expires", "2020-01-01"],
            "E155",
        ),
        (lambda: Path("day0.toml").write_text("nope = 1"), ["runs"], "E150"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_with_a_code(
    prepare: Callable[[], object], arguments: list[str], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    prepare()
    assert cli.main(arguments) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert SENTENCE.fullmatch(captured.err), captured.err
    assert f"[{code}" in captured.err
    assert "Traceback" not in captured.err


def test_a_hub_out_of_reach_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert cli.main(["adapt", "org/model", *TARGET]) == 2
    *_, last = capfd.readouterr().err.splitlines(keepends=True)
    assert "[E106]" in last
    assert SENTENCE.fullmatch(last), last


def test_a_closed_or_absent_repository_is_named(
    local_hub: LocalHub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    local_hub.add("org/gated", model, gated=True)
    for name, code in (("org/gated", "E108"), ("org/absent", "E107")):
        assert cli.main(["adapt", name, *TARGET]) == 2
        captured = capfd.readouterr()
        assert f"[{code}]" in captured.err
        assert SENTENCE.fullmatch(captured.err), captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["adapt"],
        ["adapt", "model"],
        ["runs", "--nope"],
        ["baseline", "nope"],
        ["diff", "a", "b", "c"],
    ],
)
def test_wrong_usage_is_exit_status_two(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("day0: ")
    assert captured.err.count("\n") == 1


def test_an_unforeseen_error_leaves_its_traceback_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(cli, "app", broken)
    assert cli.main(["runs"]) == 2
    captured = capfd.readouterr()
    assert "[E900]" in captured.err
    assert "Traceback" not in captured.err
    (file,) = Path(".day0/logs").iterdir()
    assert "secret detail" in file.read_text()


def test_report_runs_and_diff_answer_from_the_store(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = write_runs(2)
    assert cli.main(["report", "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    assert shape["run"] == second
    assert set(shape) >= {"verdict", "inventory", "targets", "stages", "findings"}
    assert shape["targets"][0]["target"] == "eager@cpu"
    assert cli.main(["report", first]) == 0
    assert f".day0/runs/{first}/report.html" in capfd.readouterr().out
    assert cli.main(["runs"]) == 0
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()[:2]] == [second, first]
    assert cli.main(["diff"]) == 0
    assert "r0 -> r1" in capfd.readouterr().out
    assert cli.main(["diff", first, second, "--fail-on-change", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["after"] == second
    assert cli.main(["diff", first, first, "--fail-on-change"]) == 0


def test_baselines_and_waivers_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    (run,) = write_runs(1)
    assert cli.main(["baseline", "accept", run, "--owner", "ada"]) == 0
    assert cli.main(["baseline", "show", "--json"]) == 0
    out = capfd.readouterr().out
    (row,) = json.loads(out[out.index("[") :])
    assert (row["run"], row["owner"], row["target"]) == (run, "ada", "eager@cpu")
    words = ["waive", "0123456789ab", "--owner", "ada", "--reason", "known", "--expires", "2999-01-31"]
    assert cli.main(words) == 0
    assert "until 2999-01-31" in capfd.readouterr().out
    assert json.loads(Path(".day0/waivers.json").read_text())[0]["owner"] == "ada"


def test_every_verb_explains_itself(capfd: pytest.CaptureFixture[str]) -> None:
    for name, *_ in cli._VERBS:
        assert cli.main([name, "--help"]) == 0, name
    out = capfd.readouterr().out
    assert "Not supported in this" in out


def test_doctor_asks_what_it_is_told_to(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--target", "eager@cpu", "--target", "nope@cpu", "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    verdicts = {check["subject"]: check["verdict"] for check in shape["checks"]}
    assert verdicts["target eager@cpu"] == "pass"
    assert verdicts["target nope@cpu"] == "warn"
    assert verdicts["run store"] == "pass"

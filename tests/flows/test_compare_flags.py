"""What is wrong with an option of `day0 compare` is told before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from day0.adapters.base.errors import Day0Error
from day0.flows import cli
from day0.flows.commands_adapt import adapt
from day0.flows.commands_compare import CompareFlags, compare
from day0.flows.commands_regress import regress
from support.tiny_releases import TinyRelease


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"prompts": "texts,nonsense"}, "E187"),
        ({"spread": "threads:0"}, "E189"),
        ({"sweep_precision": "bf16,fp3"}, "E464"),
        ({"sweep_precision": " , "}, "E464"),
        ({"samples": "nowhere.json"}, "E190"),
        ({"samples": "samples.json"}, "E186"),
    ],
)
def test_an_option_that_cannot_be_used_is_told_before_the_walk(
    given: dict[str, str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("samples.json").write_text('[{"prompt": 3}]')
    with pytest.raises(Day0Error) as told:
        compare("no/model", target="eager@cpu/bf16", more=CompareFlags(**given))  # type: ignore[arg-type]  # text only
    assert told.value.code == code
    assert not list(tmp_path.glob(".day0"))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("prompts", "auto"),
        ("self_test", True),
        ("sweep_precision", "fp8"),
        ("train", True),
        ("task", True),
        ("samples", "samples.json"),
        ("spread", "threads:2"),
    ],
)
def test_what_a_captured_reference_cannot_do_is_refused_by_name(flag: str, value: str | bool) -> None:
    more = CompareFlags(reference="bundle.day0ref", **{flag: value})  # type: ignore[arg-type]  # of its own type
    with pytest.raises(
        Day0Error, match=rf"^--{flag.replace('_', '-')} cannot be given with --reference"
    ) as told:
        compare("no/model", target="eager@cpu/bf16", more=more)
    assert told.value.code == "E199"


def test_a_server_is_not_held_against_a_captured_reference() -> None:
    target = "endpoint?url=http://127.0.0.1:1"
    with pytest.raises(Day0Error, match="a server shows none of its nodes") as told:
        compare("no/model", target=target, more=CompareFlags(reference="bundle.day0ref"))
    assert told.value.code == "E199"


def test_all_flags_that_a_captured_reference_cannot_follow_are_in_one_sentence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ["compare", "no/model", "--target", "eager@cpu/bf16", "--reference", "b"]
    words += ["--train", "--prompts", "texts", "--task"]
    assert cli.main(words) == cli.UNUSABLE
    assert "--prompts, --train, --task cannot be given with --reference" in capfd.readouterr().err


def test_a_folder_in_the_place_of_a_file_is_called_one(tmp_path: Path) -> None:
    for flag in ("reference", "samples"):
        with pytest.raises(Day0Error, match=r"is a folder") as told:
            compare(
                "no/model",
                target="eager@cpu/bf16",
                more=CompareFlags(**{flag: str(tmp_path)}),  # type: ignore[arg-type]  # text only
            )
        assert told.value.code == "E190"


def test_a_precision_that_cannot_be_tried_is_an_unusable_command(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "no/model", "--target", "eager@cpu/bf16", "--sweep-precision", "bf16,fp9"]
    assert cli.main(words) == cli.UNUSABLE == 2
    assert "[E464]" in capfd.readouterr().err


def test_prompts_that_are_not_shipped_are_told_before_a_run_starts() -> None:
    for verb in (adapt, regress):
        with pytest.raises(Day0Error) as told:
            verb("no/model", target=["eager@cpu/bf16"], prompts="texts,nonsense")
        assert told.value.code == "E187"


def test_a_bundle_that_cannot_be_used_is_told_before_the_walk(
    tiny: Callable[[str], TinyRelease],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bundle.day0ref").write_bytes(b"no archive")
    model = str(tiny("llama").folder)
    words = ["compare", model, "--target", "eager@cpu/bf16", "--reference", "bundle.day0ref"]
    assert cli.main(words) == cli.UNUSABLE
    told = capfd.readouterr()
    assert told.out == ""
    assert "E191" in told.err
    assert not list(tmp_path.glob(".day0/records*"))

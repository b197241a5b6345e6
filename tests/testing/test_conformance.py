from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.target import Answer, Call, Paused
from day0.testing import conformance, conformance_checks
from day0.testing.conformance import CHECKS, Check, Subject, main, open_subject
from day0_worker import trees
from support.in_process_target import InProcessTarget

EXAMPLE = Path(__file__).parent.parent / "example_vendor"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example package, installed as a vendor's user would, next to an unchanged Day0."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source, dirs_exist_ok=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(folder), str(source)], check=True, timeout=120)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))
    importlib.invalidate_caches()


@pytest.fixture(scope="module")
def subject(installed: Path) -> Iterator[Subject]:
    with open_subject("acme@cpu/fp32") as opened:
        yield opened


@pytest.mark.parametrize(("capability", "check"), CHECKS, ids=[check.__name__ for _, check in CHECKS])
def test_the_example_vendor_conforms(subject: Subject, capability: str, check: Check) -> None:
    assert not capability or capability in subject.target.describe().capabilities
    check(subject)


def test_the_example_vendors_own_code_is_what_runs(subject: Subject) -> None:
    said = subject.target.describe()
    assert said.fingerprint.family.startswith("acme 4.5 ")
    call = conformance_checks._call("aten.silu.default", [(2, 2)], "fp32")
    answer = subject.target.run_op(call, [conformance_checks._ramp((2, 2), "fp32")])
    assert dict(answer.operators) == {"kernel": "acme_silu"}


@pytest.mark.usefixtures("faulty_stack")
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        pytest.param("wrong_shape", "shape", marks=pytest.mark.slow),
        pytest.param("nan", "not finite", marks=pytest.mark.slow),
        ("scale", "relative error"),
    ],
)
def test_a_wrong_operator_does_not_conform(fault: str, text: str) -> None:
    with (
        open_subject(f"faulty@cpu/fp32?verb=run_op&fault={fault}") as faulty,
        pytest.raises(AssertionError, match=text),
    ):
        conformance_checks.runs_operators(faulty)


@pytest.mark.usefixtures("faulty_stack")
def test_the_command_says_what_passed_and_what_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    light = [
        entry for entry in CHECKS if entry[1].__name__ in ("describes_itself", "runs_operators", "generates")
    ]
    monkeypatch.setattr(conformance, "CHECKS", light)
    assert main(["light@cpu"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("passed")
    assert said[1].startswith("not claimed")
    assert said[2].startswith("failed")
    assert "does not claim to do 'model'" in said[2]
    assert main(["nowhere@cpu"]) == 2


class Twisted(InProcessTarget):
    """Runs in two parts, with one thing wrong about them."""

    def __init__(self, wrong: str) -> None:
        super().__init__("eager@cpu/fp32")
        self.wrong = wrong

    def start(self, *args: Any, **kwargs: Any) -> Answer | Paused:
        came = super().start(*args, **kwargs)
        assert isinstance(came, Paused)
        if self.wrong == "never stands still":
            return Answer(Call(*trees.encode(came.hidden)), 0, 0, {}, ())
        return replace(came, ids=came.ids + 8) if self.wrong == "ids" else came

    def resume(self, key: str, output: torch.Tensor) -> Answer | Paused:
        return super().resume(key, torch.zeros_like(output) if self.wrong == "output" else output)

    def drop(self, keys: Sequence[str] | None = None) -> None:
        if self.wrong != "drop":
            super().drop(keys)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("", ""),
        ("never stands still", "did not stand still"),
        ("ids", "experts .* of 8"),
        ("output", "in two parts: relative error"),
        ("drop", "dropped went on"),
    ],
)
def test_runs_in_two_parts_are_held_against_the_whole(tmp_path: Path, wrong: str, text: str) -> None:
    target = Twisted(wrong)
    subject = Subject(target, tmp_path)  # type: ignore[arg-type]  # it has the methods that are asked for
    with pytest.raises(AssertionError, match=text) if wrong else contextlib.nullcontext():
        conformance_checks.stands_still_at_experts(subject)
    target.wrong = ""
    target.close()

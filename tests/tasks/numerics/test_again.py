"""A fault that no operator shows alone has a script that compares the nodes again."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.again_script import again_script
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record import FirstFault
from support.tiny_releases import TinyRelease

LAYER = "model.layers.1"
TARGET = f"askew@cpu/bf16?layer={LAYER}&how=mode&op=aten.silu.default&factor=1.5"


def question(model: TinyRelease, store: Path) -> Question:
    asked = NumericsOptions(prompts="texts")
    return Question(model.release, model.skeleton, RunStore(store), "Four words", asked=asked)


@pytest.mark.slow
@pytest.mark.usefixtures("faulty_stack")
def test_the_script_of_an_operator_that_is_right_alone_shows_the_fault_and_its_absence(
    tiny: Callable[[str], TinyRelease],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["fault.py"])
    asked = question(tiny("llama"), tmp_path)
    with open_target(TargetSpec.parse(TARGET), timeout=100) as target:
        record = measure_numerics(asked, target, target.describe())
    fault = record.facts.first_fault
    assert fault is not None
    assert (fault.block, fault.op) == (LAYER, "aten.silu.default")
    script = tmp_path / "fault.py"
    for text, status, said in (
        (fault.repro, 1, "aten.silu.default"),
        (fault.repro.replace("how=mode", "how=none"), 0, f"{LAYER} is not at fault"),
        (fault.repro.replace("askew@", "nowhere@"), 2, ""),
    ):
        script.write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        assert ended.value.code == status
        assert said in capsys.readouterr().out


def test_hostile_names_stay_inside_the_docstring(tiny: Callable[[str], TinyRelease], tmp_path: Path) -> None:
    asked = replace(question(tiny("llama"), tmp_path), prompt='"""\nraise SystemExit(7)\n"""')
    hostile = 'x"""\nraise SystemExit(7)\n"""\\'
    fault = FirstFault(block=LAYER, metric="crash", value=1.0, tolerance=1.0, fragment=hostile)
    text = again_script(asked, TargetSpec.parse(TARGET), fault)
    names = {name: lambda **_: 5 for name in ("compare_again",)}
    script = tmp_path / "fault.py"
    script.write_text(text.replace("from day0.tasks.numerics.again import compare_again", ""))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), init_globals=names, run_name="__main__")
    assert ended.value.code == 5
    assert again_script(asked, TargetSpec.parse(TARGET), fault.model_copy(update={"block": "vision"})) == ""

"""The scripts of gaps run alone, and say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.tasks.coverage.letters import letter
from day0.tasks.coverage.record import Gap
from day0.tasks.coverage.repro import script
from support.captured import call_of, calls_of, meta

_aten = torch.ops.aten
EAGER = TargetSpec.parse("eager@cpu/bf16")


def _run(text: str, folder: Path) -> tuple[int, str]:
    file = folder / "gap.py"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-I", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_script_runs_alone_and_finds_a_sound_operator_right(tmp_path: Path) -> None:
    op = "aten.scaled_dot_product_attention.default"
    call = next(call for call in calls_of("llama") if call.op == op)
    code, said = _run(script(call, EAGER, 20, "missing"), tmp_path)
    assert code == 0, said
    assert "largest error" in said


def test_every_kind_of_argument_has_a_source() -> None:
    seen: dict[str, OperatorCall] = {}
    for call in calls_of("qwen3_moe"):
        seen.setdefault(call.op, call)
    for call in seen.values():
        compile(script(call, EAGER, 20, "missing"), call.op, "exec")


def test_a_wrong_operator_is_shown(tmp_path: Path) -> None:
    call = call_of(_aten.mul.Tensor, meta(4, 8), meta(4, 8))
    text = script(call, EAGER, 20, "wrong")
    spoilt = text.replace(
        "return function(*moved(args, DEVICE)", "return 1.05 * function(*moved(args, DEVICE)"
    )
    code, said = _run(spoilt, tmp_path)
    assert code == 1
    assert "largest error 0.0" in said


def test_what_is_no_torch_operator_has_no_script() -> None:
    assert script(OperatorCall(op="hub:x/y"), EAGER, 0, "unknown") == ""


def test_a_letter_says_all_that_an_owner_asks() -> None:
    call = call_of(_aten.mul.Tensor, meta(4, 8), meta(4, 8))
    gap: Any = Gap(
        id="abc", op=call.op, dtypes=call.dtypes, status="wrong", impact=0.25, layer="library", owner="Acme",
        workaround="cast:aten.mul.Tensor:fp64", checked="replayed", evidence="error 0.05 against fp64",
        repro="print()",
    )  # fmt: skip
    fingerprint = Fingerprint(family="acme 1", exact={"acme": "1.2.3"})
    text = letter(gap, call, EAGER, fingerprint, {"type": "llama", "phases": "prefill"})
    for part in ("To: Acme", "fp32[4, 8]", "error 0.05 against fp64", "acme 1.2.3", "25.0%", "print()"):
        assert part in text


def test_a_tensor_without_elements_may_lie_in_any_order(tmp_path: Path) -> None:
    call = call_of(torch.ops.aten.mm.default, meta(3, 0), meta(50, 0).t())
    code, said = _run(script(call, EAGER, 20, "missing"), tmp_path)
    assert code == 0, said

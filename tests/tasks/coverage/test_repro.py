"""The scripts of gaps run alone, and say what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.tasks.coverage.letters import letter
from day0.tasks.coverage.record import Gap
from day0.tasks.coverage.repro import script
from day0.tasks.coverage.shown import Shown
from day0.tasks.operator_script import Way
from day0_worker.operator_inputs import make_inputs
from support.captured import call_of, calls_of, meta

_aten = torch.ops.aten
EAGER = TargetSpec.parse("eager@cpu/bf16")


ACME = TargetSpec.parse("acme@cpu/bf16")
BF16 = torch.bfloat16

_FAULTY = """
import os, time, warnings
import torch

torch.set_num_threads(1)
library = torch.library.Library("aten", "IMPL")


def spoilt(name, fault):
    packet, overload = name.split(".")
    sound = getattr(getattr(torch.ops.aten, packet), overload)
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    def kernel(*args, **kwargs):
        host = torch.float64
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        wide = [one.to(host) if getattr(one, "dtype", None) == torch.bfloat16 else one for one in args]
        if name == "embedding.default":
            made = wide[0][wide[1]]
        elif name == "neg.default":
            made = wide[0] * -1
        elif name == "mm.default":
            made = (wide[0][:, :, None] * wide[1][None]).sum(1)
        else:
            made = torch.sin(wide[0] + torch.pi / 2)
        made = made.to(tensors[0].dtype)
        return fault(made, tensors) if tensors[0].dtype == torch.bfloat16 else made

    library.impl(name if overload != "default" else packet, kernel, "CPU")


def overwrites(made, tensors):
    tensors[0].fill_(1.0)
    return made


def large(made, tensors):
    return torch.where(tensors[0] > 60, torch.nan, made)


def hangs(made, tensors):
    time.sleep(3600)


CALLS = []


def lags(made, tensors):
    CALLS.append(0)  # of the call itself, the reference's and the host's it is quick
    time.sleep(0.3 if len(CALLS) > 3 else 0)
    return made


FAULTS = {FAULTS}
for name, fault in FAULTS.items():
    spoilt(name, fault)
"""


def _run(text: str, folder: Path, isolated: bool = True) -> tuple[int, str]:
    file = folder / "gap.py"
    file.write_text(text)
    command = [sys.executable, *(["-I"] if isolated else []), str(file)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def test_a_script_runs_alone_and_finds_a_sound_operator_right(tmp_path: Path) -> None:
    op = "aten.scaled_dot_product_attention.default"
    call = next(call for call in calls_of("llama") if call.op == op)
    code, said = _run(script(Shown(call, 20), EAGER, "missing", Way()), tmp_path)
    assert code == 0, said
    assert "largest error" in said


def test_every_kind_of_argument_has_a_source() -> None:
    seen: dict[str, OperatorCall] = {}
    for call in calls_of("qwen3_moe"):
        seen.setdefault(call.op, call)
    for call in seen.values():
        compile(script(Shown(call, 20), EAGER, "missing", Way()), call.op, "exec")


def test_a_wrong_operator_is_shown(tmp_path: Path) -> None:
    call = call_of(_aten.mul.Tensor, meta(4, 8), meta(4, 8))
    text = script(Shown(call, 20), EAGER, "wrong", Way())
    spoilt = text.replace(
        "return function(*moved(args, DEVICE)", "return 1.05 * function(*moved(args, DEVICE)"
    )
    code, said = _run(spoilt, tmp_path)
    assert code == 1
    assert "largest error 0.0" in said


def test_what_is_no_torch_operator_has_no_script() -> None:
    assert script(Shown(OperatorCall(op="hub:x/y"), 0), EAGER, "unknown", Way()) == ""


def test_a_letter_says_all_that_an_owner_asks() -> None:
    call = call_of(_aten.mul.Tensor, meta(4, 8), meta(4, 8))
    gap: Any = Gap(
        id="abc", op=call.op, dtypes=call.dtypes, status="wrong", impact=0.25, layer="library", owner="Acme",
        workaround="cast:aten.mul.Tensor:fp64", checked="replayed", evidence="error 0.05 against fp64",
        repro="print()",
    )  # fmt: skip
    fingerprint = Fingerprint(family="acme 1", exact={"acme": "1.2.3"})
    text = letter(gap, call, EAGER, fingerprint, {"type": "llama", "phases": "prefill", "inputs": "large"})
    for part in (
        "To: Acme",
        "fp32[4, 8]",
        "error 0.05 against fp64",
        "acme 1.2.3",
        "25.0%",
        "print()",
        "Inputs: large",
    ):
        assert part in text


def test_a_tensor_without_elements_may_lie_in_any_order(tmp_path: Path) -> None:
    call = call_of(torch.ops.aten.mm.default, meta(3, 0), meta(50, 0).t())
    code, said = _run(script(Shown(call, 20), EAGER, "missing", Way()), tmp_path)
    assert code == 0, said


def _spoilt(folder: Path, faults: str, shown: Shown, status: str) -> tuple[int, str]:
    (folder / "acme_torch.py").write_text(_FAULTY.replace("{FAULTS}", faults))
    return _run(script(shown, ACME, status, Way(modules=["acme_torch"])), folder, isolated=False)


def _tall(rows: int) -> OperatorCall:
    return call_of(_aten.embedding.default, meta(rows, 64, dtype=BF16), meta(2, 9, dtype=torch.int64))


_MM = call_of(_aten.mm.default, meta(1, 64, dtype=BF16), meta(64, 160, dtype=BF16))
_COS = call_of(_aten.cos.default, meta(4, 8, dtype=BF16))
_NEG = call_of(_aten.neg.default, meta(4, 8, dtype=BF16))
_ONE_ROW = '{"mm.default": lambda made, given: made * (1.1 if len(given[0]) == 1 else 1)}'
_MANY_ROWS = '{"embedding.default": lambda made, given: made * (2 if len(given[0]) > 300 else 1)}'


@pytest.mark.parametrize(
    ("faults", "shown", "status", "said"),
    [
        (_ONE_ROW, Shown(_MM, 20), "wrong", "values that the dtype"),
        pytest.param(
            _MANY_ROWS, Shown(_tall(320), 20), "wrong", "values that the dtype", marks=pytest.mark.slow
        ),
        ('{"cos.default": large}', Shown(_COS, 20, "large"), "wrong", "values that the dtype"),
        ('{"neg.default": overwrites}', Shown(_NEG, 20), "wrong", "wrote over its argument self"),
        ('{"neg.default": lambda made, given: os._exit(0)}', Shown(_NEG, 20), "crash", "ended with status 0"),
        pytest.param(
            '{"neg.default": lags}',
            Shown(_NEG, 20),
            "slow",
            "each timing takes more than",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one row", "many rows", "large values", "overwritten", "ends itself", "slow"],
)
def test_a_script_shows_what_was_seen(
    tmp_path: Path, faults: str, shown: Shown, status: str, said: str
) -> None:
    code, output = _spoilt(tmp_path, faults, shown, status)
    assert (code, said in output) == (1, True), output


@pytest.mark.slow
@pytest.mark.parametrize("shown", [Shown(_tall(320), 20), Shown(_COS, 20, "large")])
def test_without_the_fault_the_same_script_is_content(tmp_path: Path, shown: Shown) -> None:
    code, output = _spoilt(tmp_path, "{}", shown, "wrong")
    assert code == 0, output


@pytest.mark.slow
def test_a_call_that_never_returns_is_ended(tmp_path: Path) -> None:
    (tmp_path / "acme_torch.py").write_text(_FAULTY.replace("{FAULTS}", '{"neg.default": hangs}'))
    text = script(Shown(_NEG, 20), ACME, "hang", Way(modules=["acme_torch"]))
    code, output = _run(text.replace("SECONDS = 60", "SECONDS = 1"), tmp_path, isolated=False)
    assert code == 1, output
    assert "Timeout" in output


def test_a_fallback_is_looked_for(tmp_path: Path) -> None:
    fallback = 'lambda made, given: warnings.warn("neg will fall back to run on the CPU") or made'
    code, output = _spoilt(tmp_path, f'{{"neg.default": {fallback}}}', Shown(_NEG, 20), "fallback")
    assert code == 1, output
    assert "ran on the host" in output


@pytest.mark.slow
def test_modules_that_are_not_there_are_no_fault(tmp_path: Path) -> None:
    gone = script(Shown(_NEG, 20), ACME, "missing", Way(modules=["acme_torch"]))
    assert _run(gone, tmp_path)[0] == 2


def test_a_device_that_cannot_be_set_up_is_no_fault(tmp_path: Path) -> None:
    unknown = script(Shown(_NEG, 20), TargetSpec.parse("acme@npu/bf16"), "missing", Way())
    code, output = _run(unknown, tmp_path)
    assert code == 2, output
    assert "cannot be set up here" in output


@pytest.mark.slow
@pytest.mark.parametrize(("op", "code"), [("exp", 1), ("mm", 0)])
def test_a_stack_with_a_way_of_its_own_is_asked_itself(
    tmp_path: Path, faulty_stack: Path, op: str, code: int
) -> None:
    given = [meta(4, 4)] * (2 if op == "mm" else 1)
    call = call_of(getattr(_aten, op).default, *given)
    way = Way(reference="day0_faulty.falling_back:FallingStack")
    text = script(Shown(call, 20), TargetSpec.parse("fallen@abacus"), "fallback", way)
    file = tmp_path / "gap.py"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(faulty_stack)},
    )
    assert done.returncode == code, done.stdout + done.stderr


def test_whole_numbers_are_counted_where_the_cpu_cannot(tmp_path: Path) -> None:
    call = call_of(_aten.histc.default, meta(64, dtype=torch.int32), 8, 0, 7)
    code, output = _run(script(Shown(call, 20), EAGER, "missing", Way()), tmp_path)
    assert code == 1, output
    assert "FAILS: " in output
    assert "READY" in output


def test_what_a_script_cannot_see_it_says(tmp_path: Path) -> None:
    spec = TargetSpec.parse("inductor@cpu/bf16")
    text = script(Shown(_NEG, 20), spec, "slow", Way())
    assert 'Untold("the values are right, and whether it is slow' in text


def test_inputs_too_many_for_the_text_are_those_of_the_probe(tmp_path: Path) -> None:
    call = call_of(_aten.index_add.default, meta(64, 48), 0, meta(32, dtype=torch.int64), meta(32, 48))
    text = script(Shown(call, 21, "wide"), EAGER, "wrong", Way())
    drawn: dict[str, Any] = {"__name__": "gap"}
    with pytest.raises(SystemExit):
        exec(compile(text, "gap", "exec"), drawn)
    for place, tensor in enumerate(make_inputs(call.model_dump(mode="json"), 21, "wide")):
        assert torch.equal(drawn[f"T{place}"], tensor)

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.adapters.base.errors import RemoteError, UnsupportedError, WorkerCrashed, WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import Call, Fragment
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.target import WorkerTarget
from day0.testing.tiny_llama import ARCHITECTURE, PROMPT, TinyLlama, make_tiny_llama
from day0_worker import trees


@pytest.fixture(scope="module")
def target() -> Iterator[WorkerTarget]:
    with open_target(TargetSpec.parse("eager@cpu/fp32"), timeout=120) as opened:
        yield opened


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> TinyLlama:
    return make_tiny_llama(tmp_path_factory.mktemp("llama"), "fp32", "sdpa")


def operator(op: str, *shapes: list[int]) -> OperatorCall:
    args = [
        {
            "tensor": {
                "dtype": "fp32",
                "shape": shape,
                "stride": list(torch.empty(shape).stride()),
                "alias": alias,
            }
        }
        for alias, shape in enumerate(shapes)
    ]
    return OperatorCall(op=op, args=args, dtypes=["fp32"] * len(shapes), shapes=shapes)


def first(outputs: Call) -> torch.Tensor:
    value = trees.decode(outputs.tree, outputs.tensors)
    tensor: torch.Tensor = value[0] if isinstance(value, tuple) else value
    return tensor


def prepared(target: WorkerTarget, llama: TinyLlama, node: str, phase: str = "prefill") -> str:
    fragment = Fragment(
        node=node, kind=node, architecture=ARCHITECTURE, config=llama.config, dtype="fp32", options={}
    )
    return target.prepare(fragment, llama.calls[node, phase], mode=phase)


def by_value(llama: TinyLlama, node: str) -> dict[str, Any]:
    return {name: {"value": tensor} for name, tensor in llama.weights[node].items()}


def by_file(llama: TinyLlama, node: str) -> dict[str, Any]:
    file = llama.folder / "model.safetensors"
    with open(file, "rb") as handle:
        size = int.from_bytes(handle.read(8), "little")
        header = json.loads(handle.read(size))
    return {
        name: {
            "file": str(file),
            "offset": 8 + size + header[f"{node}.{name}"]["data_offsets"][0],
            "dtype": "fp32",
            "shape": list(tensor.shape),
        }
        for name, tensor in llama.weights[node].items()
    }


def test_the_description_names_what_it_is_made_of(target: WorkerTarget) -> None:
    said = target.describe()
    assert said.fingerprint.family.startswith("torch 2.")
    assert said.fingerprint.exact["torch"] == torch.__version__
    assert said.fingerprint.exact["threads"].isdigit()
    words = {"op", "fragment", "parts", "observe", "grad", "model", "generate", "collectives"}
    assert set(said.capabilities) == words
    assert target.describe() is said


def test_operators_run_on_given_tensors(target: WorkerTarget) -> None:
    left, right = torch.randn(3, 4), torch.randn(4, 5)
    answer = target.run_op(operator("aten.mm.default", [3, 4], [4, 5]), [left, right])
    assert torch.equal(first(answer.outputs), left @ right)
    assert answer.seconds > 0


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (operator("aten.mm.default", [3, 4], [3, 4]), "shape"),
        (operator("aten.is_nowhere.default", [3, 4]), "missing_operator"),
    ],
)
def test_errors_of_the_stack_come_back_with_their_kind(
    target: WorkerTarget, call: OperatorCall, kind: str
) -> None:
    with pytest.raises(RemoteError) as caught:
        target.run_op(call, [torch.ones(shape) for shape in call.shapes])
    assert caught.value.kind == kind
    assert caught.value.log


@pytest.mark.parametrize("weights", [by_value, by_file])
def test_nodes_agree_with_the_model_in_prefill_and_decode(
    target: WorkerTarget, llama: TinyLlama, weights: Any
) -> None:
    state = weights.__name__
    for phase in ("prefill", "decode"):
        for node in ("model.layers.0", "model.layers.1", "lm_head"):
            handle = prepared(target, llama, node, phase)
            answer = target.run(handle, node, weights(llama, node), llama.calls[node, phase], state=state)
            assert torch.allclose(first(answer.outputs), llama.results[node, phase], atol=1e-6)
    target.forget(state)


def test_weights_go_by_value_where_the_worker_does_not_see_the_file(
    target: WorkerTarget, llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target._weights, "_seen", {str(llama.folder / "model.safetensors"): False})
    sent: list[Any] = []
    worker = target._worker
    assert worker is not None
    real = worker.call

    def call(verb: str, request: Any, tensors: Any = None, *, timeout: float) -> Any:
        sent.append(request)
        return real(verb, request, tensors, timeout=timeout)

    monkeypatch.setattr(worker, "call", call)
    node = "model.norm"
    answer = target.run(
        prepared(target, llama, node), node, by_file(llama, node), llama.calls[node, "prefill"]
    )
    assert torch.allclose(first(answer.outputs), llama.results[node, "prefill"], atol=1e-6)
    assert sent[-1]["weights"] == {"weight": {"value": "weight1"}}


def test_kept_weights_are_those_of_the_last_node(target: WorkerTarget, llama: TinyLlama) -> None:
    node, call = "model.norm", llama.calls["model.norm", "prefill"]
    handle = prepared(target, llama, node)
    expected = first(target.run(handle, node, by_value(llama, node), call).outputs)
    assert torch.equal(first(target.run(handle, node, {}, call).outputs), expected)
    head = "lm_head"
    target.run(prepared(target, llama, head), head, by_value(llama, head), llama.calls[head, "prefill"])
    with pytest.raises(RemoteError, match=r"no longer here"):
        target.run(handle, node, {}, call)


def test_weights_that_do_not_fit_are_a_key_mismatch(target: WorkerTarget, llama: TinyLlama) -> None:
    node, call = "model.norm", llama.calls["model.norm", "prefill"]
    handle = prepared(target, llama, node)
    for weights in ({"weight": torch.ones(3)}, {"weight": torch.ones(64), "bias": torch.ones(64)}):
        with pytest.raises(RemoteError) as caught:
            target.run(handle, node, {name: {"value": tensor} for name, tensor in weights.items()}, call)
        assert caught.value.kind == "key_mismatch"


def test_its_loader_reports_keys_and_the_model_scores_and_generates(
    target: WorkerTarget, llama: TinyLlama, tmp_path: Path
) -> None:
    report = target.load(str(llama.folder), dtype="fp32")
    assert [*report.missing, *report.unexpected, *report.mismatched] == []
    assert torch.allclose(first(target.score(PROMPT).outputs), llama.logits, atol=1e-5)
    made = target.generate([PROMPT[0], PROMPT[0]], new_tokens=3)
    assert made.tokens[0] == made.tokens[1]
    assert made.tokens[0][0] == int(llama.logits[0, -1].argmax())
    assert len(made.tokens[0]) == 3
    tensors = load_file(llama.folder / "model.safetensors")
    tensors["model.layers.7.extra.weight"] = torch.ones(2)
    tensors["model.norm.weight"] = torch.ones(5)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((llama.folder / "config.json").read_text())
    report = target.load(str(tmp_path), dtype="fp32")
    assert list(report.missing) == ["model.layers.0.mlp.up_proj.weight"]
    assert list(report.unexpected) == ["model.layers.7.extra.weight"]
    assert list(report.mismatched) == ["model.norm.weight: [5] in the checkpoint, [64] in the model"]


def test_code_in_a_folder_is_not_run(target: WorkerTarget, llama: TinyLlama, tmp_path: Path) -> None:
    config = json.loads((llama.folder / "config.json").read_text())
    config |= {
        "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
        "model_type": "evil",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "model.safetensors").write_bytes((llama.folder / "model.safetensors").read_bytes())
    target.load(str(tmp_path), dtype="fp32")
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_are_not_loaded(target: WorkerTarget, llama: TinyLlama, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((llama.folder / "config.json").read_text())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(RemoteError, match=r"model.safetensors"):
        target.load(str(tmp_path), dtype="fp32")


def test_two_ranks_compute_and_exchange(target: WorkerTarget) -> None:
    job = {"job": "collectives", "dtypes": ["fp32", "bf16", "int64"], "elements": [1000, 7], "samples": 2}
    ranks = target.launch(2, job)
    assert [(rank["rank"], rank["outcome"]) for rank in ranks] == [(0, "finished"), (1, "finished")]
    checks = [check for rank in ranks for check in rank["checks"]]
    assert len(checks) == 2 * 7 * 3 * 2
    assert [check["name"] for check in checks if not check["passed"]] == []
    assert all(len(check["seconds"]) == 2 for check in checks)
    cases = [
        {"operation": "gemm", "shape": [300, 64, 200], "dtype": "bf16"},
        {"operation": "attention", "shape": [1, 2, 16, 8], "dtype": "fp32"},
        {"operation": "topk", "shape": [16, 64, 6], "dtype": "bf16"},
    ]
    (rank,) = target.launch(1, {"job": "compute", "cases": cases})
    assert [(check["passed"], check["repeatable"]) for check in rank["checks"]] == [(True, True)] * 3
    with pytest.raises(RemoteError, match=r"there is no job 'dance'"):
        target.launch(1, {"job": "dance"})


def test_after_a_death_the_next_call_starts_a_fresh_worker(target: WorkerTarget) -> None:
    call = operator("aten.neg.default", [2])
    target.run_op(call, [torch.ones(2)])
    pid, starts = target.pid, target.starts
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    target.timeout, before = 0.5, target.timeout
    with pytest.raises(WorkerError):
        target.run_op(call, [torch.ones(2)])
    target.timeout = before
    assert first(target.run_op(call, [torch.ones(2)]).outputs).tolist() == [-1, -1]
    assert target.pid != pid
    assert target.starts == starts + 1
    assert target.worker_peak_bytes > 50 * 2**20


@pytest.fixture(scope="module")
def faulty(faulty_stack: Path) -> Iterator[WorkerTarget]:
    with open_target(TargetSpec.parse("faulty@cpu/fp32"), timeout=120) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def imported_before() -> set[str]:
    """What other tests of this process had imported before the first one here."""
    return set(sys.modules)


@pytest.mark.usefixtures("faulty_stack")
class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "outcomes"), [("rank_dies", "died"), ("rank_hangs", "hung"), ("rank_lies", "finished")]
    )
    def test_a_rank_that_fails_is_named(self, faulty: WorkerTarget, fault: str, outcomes: str) -> None:
        job = {
            "job": "collectives", "operations": ["all_reduce", "broadcast"], "dtypes": ["fp32"],
            "elements": [8], "samples": 1, "timeout": 4, "fault": fault, "rank": 1,
        }  # fmt: skip
        ranks = faulty.launch(3, job)
        assert ranks[1]["outcome"] == outcomes
        if fault == "rank_lies":
            wrong = [
                (rank["rank"], check["name"])
                for rank in ranks
                for check in rank["checks"]
                if not check["passed"]
            ]
            assert wrong == [(1, "broadcast fp32 8")]
        else:
            assert [rank["outcome"] for rank in ranks if rank["rank"] != 1] == ["stopped", "stopped"]

    def test_what_is_not_claimed_is_unsupported(self) -> None:
        with (
            open_target(TargetSpec.parse("light@cpu")) as light,
            pytest.raises(UnsupportedError, match=r"'op'"),
        ):
            light.run_op(operator("aten.neg.default", [2]), [torch.ones(2)])

    def test_a_crash_in_a_call_is_an_error_of_its_own_kind(self) -> None:
        with (
            open_target(TargetSpec.parse("light@cpu?fault=segfault")) as light,
            pytest.raises(WorkerCrashed, match=r"SIGSEGV"),
        ):
            light.generate([[1]], new_tokens=1)

    def test_the_parent_never_imports_a_stack(self, imported_before: set[str]) -> None:
        assert not [name for name in set(sys.modules) - imported_before if name.startswith("day0_faulty")]

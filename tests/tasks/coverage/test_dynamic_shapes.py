from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.errors import RemoteError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Answer, Call, CompileReport, Fragment
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.adapters.targets.open import open_target
from day0.tasks.coverage.dynamic_shapes import example_sizes, sweep_shapes
from day0.tasks.coverage.kind_facts import is_known, size_facts
from day0.tasks.coverage.kind_rows import KindRow, KindRows, KindsOn, add_kinds
from day0.tasks.coverage.kind_walk import KindWalk
from day0.tasks.coverage.kinds import Trials, compile_kinds
from day0.tasks.coverage.record_kinds import KindShapes
from day0.tasks.coverage.size_cases import Case, cases_of, untaken
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
SPEC = TargetSpec.parse("onnxruntime@cpu/fp32")
ON = KindsOn(SPEC, "fp32", Fingerprint(family="f 1", exact={"version": "1"}), "config")


class Compiler:
    """Stands for a compiling target: it counts what it would compile, and computes nothing."""

    spec = SPEC
    timeout = 10.0

    def __init__(self, key: Callable[[Call], object], refuses: Callable[[Call], bool] | None = None) -> None:
        self.key, self.refuses = key, refuses or (lambda call: False)
        self.made: dict[str, set[object]] = {}
        self.breaks: tuple[str, ...] = ()
        self.varying: set[tuple[int, ...]] = set()
        self.runs: list[tuple[str, tuple[int, ...]]] = []

    def prepare(self, fragment: Fragment, example: Call, *, mode: str, weights: str = "lifted") -> str:
        self.varying.add(tuple(fragment.varying))
        if self.refuses(example):
            raise RemoteError("no", kind="shape", type_name="", place={"op": "aten.mm.default"})
        widths = [fragment.config[name] for name in ("vocab_size", "intermediate_size")]
        handle = f"{fragment.kind} {mode} {widths}"
        self.made.setdefault(handle, set()).add((str(example.tree), self.key(example)))
        self.runs.append((fragment.node, tuple(next(iter(example.tensors.values())).shape[:2])))
        return handle

    def run(self, handle: str, node: str, weights: Any, inputs: Call, *, state: str | None = None) -> Answer:
        return Answer(Call(None, {}), 0.0, 0, {}, ())

    def report(self, handle: str) -> CompileReport:
        return CompileReport(graphs=len(self.made[handle]), breaks=self.breaks)


def shapes_of(call: Call) -> object:
    return tuple(tuple(tensor.shape) for tensor in call.tensors.values())


def longest(call: Call) -> int:
    return max((max(tensor.shape, default=0) for tensor in call.tensors.values()), default=0)


def swept(
    tiny: Tiny, target: Any, model_type: str = "llama", rows: KindRows | None = None, until: float = 1e12
) -> Trials:
    with KindWalk(tiny(model_type).skeleton, "fp32", {}) as walk:
        trials = Trials(walk, target, ON, rows or KindRows(SPEC.registry_name), until)
        sweep_shapes(trials)
    return trials


def sweep(tiny: Tiny, target: Any, model_type: str = "llama", until: float = 1e12) -> list[KindShapes]:
    return size_facts(ON, swept(tiny, target, model_type, until=until).rows, tiny(model_type).skeleton)


def as_compiled(trials: Trials) -> list[KindRow]:
    """Rows as those of kinds that were compiled for themselves."""
    return [
        row.model_copy(update={"case": phase})
        for row in trials.rows.rows.values()
        for phase in ("prefill", "decode")
        if row.case == "example"
    ]


def test_one_graph_for_all_sizes_is_dynamic(tiny: Tiny) -> None:
    target = Compiler(lambda call: len(call.tensors))
    found = sweep(tiny, target)
    assert {one.answer for one in found} == {"dynamic"}
    assert {one.grade for one in found} == {"measured"}
    assert not any(one.recompiled for one in found)
    # A mask where there was none is another graph, and no recompilation; so is a decode step. Other widths
    # make another model.
    layer = next(one for one in found if one.role == "layer")
    assert layer.graphs == 3 + 1
    assert "feed-forward + 3" in layer.ran
    assert "vocabulary + 1" not in layer.ran
    assert "decode after 127" in layer.ran
    embedding = next(one for one in found if one.role == "embedding")
    assert "vocabulary + 1" in embedding.ran
    assert not any("decode" in name for name in embedding.ran)
    with KindWalk(tiny("llama").skeleton, "fp32", {}) as walk:
        sequences, length = example_sizes(walk)
        assert not walk.sizes & {sequences, length}
    assert (length, sequences) in target.varying
    assert (length, length + 1, sequences) in target.varying


def test_a_graph_for_each_size_is_static(tiny: Tiny) -> None:
    found = sweep(tiny, Compiler(shapes_of))
    assert {one.answer for one in found} == {"static"}
    layer = next(one for one in found if one.role == "layer")
    assert {"length 1", "length 7", "length 127", "length 128", "batch 3"} <= set(layer.recompiled)
    assert any("length 129" in name for name in layer.untested)  # the model takes 128


def test_a_size_of_one_alone_is_still_dynamic(tiny: Tiny) -> None:
    found = sweep(tiny, Compiler(lambda call: 1 in next(iter(call.tensors.values())).shape[:2]))
    assert {one.answer for one in found} == {"dynamic"}
    layer = next(one for one in found if one.role == "layer")
    assert set(layer.recompiled) == {"length 1"}


def test_failures_and_breaks_are_named(tiny: Tiny) -> None:
    target = Compiler(lambda call: 0, refuses=lambda call: longest(call) >= 127)
    target.breaks = ("Dynamic slicing",)
    found = sweep(tiny, target)
    assert {one.answer for one in found} == {"fallback"}
    layer = next(one for one in found if one.role == "layer")
    assert [(one.case, one.outcome, one.op) for one in layer.failures] == [
        ("length 127", "shape", "aten.mm.default"),
        ("length 128", "shape", "aten.mm.default"),
        ("ragged, padded by up to 100", "shape", "aten.mm.default"),
        ("decode after 127", "shape", "aten.mm.default"),
    ]
    assert layer.failures[-1].detail.startswith("the tokens before it failed")
    assert {one.answer for one in sweep(tiny, Compiler(lambda call: 0, lambda call: True))} == {"failed"}


def test_what_no_time_was_left_for_is_unknown_not_dynamic(tiny: Tiny) -> None:
    trials = swept(tiny, Compiler(lambda call: 0), until=0.0)
    assert not trials.rows.rows
    example = swept(tiny, Compiler(lambda call: 0))
    alone = [row for row in example.rows.rows.values() if row.case == "example"]
    rows = KindRows(SPEC.registry_name).merged(alone, example.rows.fingerprints)
    found = size_facts(ON, rows, tiny("llama").skeleton)
    assert {one.answer for one in found} == {"unknown"}
    assert "length 7: no time was left" in found[0].untested


def test_what_is_known_is_not_tried_again(tiny: Tiny) -> None:
    first = swept(tiny, Compiler(lambda call: 0))
    kept = [row for row in first.rows.rows.values() if row.case != "length 7"]
    target = Compiler(lambda call: 0)
    again = swept(tiny, target, rows=KindRows(SPEC.registry_name).merged(kept, first.rows.fingerprints))
    facts = size_facts(ON, first.rows, tiny("llama").skeleton)
    assert size_facts(ON, again.rows, tiny("llama").skeleton) == facts
    # One case, and the example, which the fresh worker has to compile first; nothing else.
    sizes = [size for node, size in target.runs if node == "model.layers.0"]
    assert len(sizes) == 2
    assert sizes[1] == (2, 7)
    target.runs.clear()
    swept(tiny, target, rows=first.rows)
    assert target.runs == []


def test_kinds_are_known_by_graph_and_fingerprint(tiny: Tiny) -> None:
    skeleton = tiny("llama").skeleton
    trials = swept(tiny, Compiler(lambda call: 0))
    rows = trials.rows.merged(as_compiled(trials), trials.rows.fingerprints)
    assert is_known(ON, rows, skeleton)
    renamed = skeleton.model_copy(
        update={"nodes": [node.model_copy(update={"name": f"other.{node.name}"}) for node in skeleton.nodes]}
    )
    assert is_known(ON, rows, renamed)
    newer = KindsOn(SPEC, "fp32", Fingerprint(family="f 1", exact={"version": "2"}), "config")
    assert not is_known(newer, rows, skeleton)
    assert {one.grade for one in size_facts(newer, rows, skeleton)} == {"inherited"}
    other = KindsOn(SPEC, "fp32", Fingerprint(family="g 1", exact={"version": "1"}), "config")
    assert size_facts(other, rows, skeleton) == []
    with_option = KindsOn(TargetSpec.parse(f"{SPEC}?attn=eager"), "fp32", ON.fingerprint, "config")
    assert not is_known(with_option, rows, skeleton)


_READ = """
import sys
from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.registry import Registry
from day0.tasks.coverage.kind_rows import load_kinds
from day0.tasks.coverage.measure import measure_coverage
from day0.tasks.coverage.question import Question

def never(spec):
    raise AssertionError(f"{spec} was opened")

store, spec = RunStore(sys.argv[1]), TargetSpec.parse(sys.argv[2])
skeleton = Skeleton.model_validate_json(store.read("skeleton.json"))
record = measure_coverage(Question(
    spec=spec,
    description=TargetDescription(api=1, capabilities=["op", "fragment"], dtypes={}, devices=[],
                                  fingerprint=Fingerprint(family="f 1", exact={"version": "1"})),
    capture=Capture(request=CaptureRequest()),
    registry=Registry(spec.registry_name),
    config={},
    config_digest="config",
    open_target=never,
    skeleton=lambda: skeleton,
    kind_rows=load_kinds(store, spec.registry_name),
))
facts = record.facts
print(sorted({one.outcome for one in facts.kinds}), sorted({one.answer for one in facts.dynamic}))
print(sorted({"torch", "transformers", "prefect"} & set(sys.modules)))
"""


def test_where_all_is_known_no_worker_starts_and_torch_is_not_imported(tiny: Tiny, tmp_path: Path) -> None:
    trials = swept(tiny, Compiler(lambda call: 0))
    store = RunStore(tmp_path)
    add_kinds(store, trials.rows.merged(as_compiled(trials), trials.rows.fingerprints))
    store.write("skeleton.json", tiny("llama").skeleton.model_dump_json().encode())
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path), str(SPEC)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["['ran'] ['dynamic']", "[]"], done.stderr


def test_experts_without_tokens_are_a_case_of_layers_with_experts(tiny: Tiny) -> None:
    idle = "one token, idle experts"
    target = Compiler(
        lambda call: 0, refuses=lambda call: next(iter(call.tensors.values())).shape[:2] == (1, 1)
    )
    found = sweep(tiny, target, "qwen3_moe")
    failed = {one.node for one in found if any(failure.case == idle for failure in one.failures)}
    assert failed == {"model.layers.1"}  # the first of them, after one dense layer


def test_padding_grows_with_the_row() -> None:
    assert Case("", 3, 4, padding=2).mask == [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert Case("", 3, 4).mask is None


def test_cases_follow_the_config(tiny: Tiny) -> None:
    node = next(node for node in tiny("llama").skeleton.nodes if node.role == "layer")
    config = {
        "max_position_embeddings": 600,
        "sliding_window": 512,
        "vocab_size": 96,
        "intermediate_size": 64,
    }
    named = {case.name: case for case in cases_of(config)}
    assert named["length 513, beyond the window"].length == 513
    assert named["decode after 513, beyond the window"].decode
    assert named["vocabulary + 1"].widths == {"vocab_size": 97}
    assert named["feed-forward + 3"].widths == {"intermediate_size": 67}
    assert untaken(config, node) == []
    inside = {"text_config": {"max_position_embeddings": 128, "moe_intermediate_size": 32}}
    assert {case.name for case in cases_of(inside) if case.widths} == {"feed-forward + 3"}
    assert untaken(inside, node) == [
        "length 129: longer than 128 tokens",
        "decode after 128: longer than 128 tokens",
    ]


@pytest.mark.slow
def test_a_target_that_compiles_nothing_has_no_answers(tiny: Tiny) -> None:
    with open_target(TargetSpec.parse("eager@cpu/fp32"), timeout=60) as target:
        trials = swept(tiny, target)
    assert size_facts(ON, trials.rows, tiny("llama").skeleton) == []
    assert {row.case for row in trials.rows.rows.values()} == {"example"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", ["onnxruntime@cpu/fp32", "openvino@cpu/fp32?attn=eager", "inductor@cpu/fp32"]
)
def test_a_layer_is_compiled_once_for_all_lengths(tiny: Tiny, name: str) -> None:
    spec = TargetSpec.parse(name)
    on = KindsOn(spec, "fp32", ON.fingerprint, "config")
    skeleton = tiny("llama").skeleton
    with KindWalk(skeleton, "fp32", spec.options) as walk, open_target(spec, timeout=300) as target:
        trials = Trials(walk, target, on, KindRows(spec.registry_name))
        compile_kinds(trials)
        sweep_shapes(trials)
    assert is_known(on, trials.rows, skeleton)
    layer = next(one for one in size_facts(on, trials.rows, skeleton) if one.role == "layer")
    assert (layer.answer, list(layer.failures), list(layer.breaks)) == ("dynamic", [], [])
    assert set(layer.recompiled) <= {"length 1", "batch 1", "decode after 1"}
    assert {"decode after 127", "feed-forward + 3"} <= set(layer.ran)

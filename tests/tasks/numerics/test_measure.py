"""The walk over a tiny model: what is found, where, and what is kept."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from day0.adapters.base.errors import WorkerTimeout
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Node
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.prompts.prompts import TEXTS
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record import NumericsRecord
from day0.tasks.reference_arm import Arm
from support.in_process_target import InProcessTarget, dies, lacks_an_operator, scaled
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
PROMPT = "Four words are here"


def measured(
    tiny: TinyRelease, target: Any, store: Path, salt: str = "", prompts: str = "texts"
) -> NumericsRecord:
    asked = NumericsOptions(prompts=prompts)
    question = Question(tiny.release, tiny.skeleton, RunStore(store), PROMPT, salt, asked=asked)
    return measure_numerics(question, target, target.describe())


@pytest.fixture(scope="module")
def llama(tiny: Tiny) -> TinyRelease:
    return tiny("llama")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the reference's nodes are found again by the next test."""
    return tmp_path_factory.mktemp("numerics")


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_clean_target_passes_on_every_node(llama: TinyRelease, shared: Path, dtype: str) -> None:
    record = measured(llama, InProcessTarget(f"eager@cpu/{dtype}"), shared)
    facts = record.facts
    assert record.verdict == "pass"
    assert [block.name for block in facts.blocks] == [node.name for node in llama.skeleton.nodes]
    assert {block.verdict for block in facts.blocks} == {"pass"}
    assert facts.first_fault is None
    assert facts.logits is not None
    assert (facts.logits.positions, facts.logits.decisive) == (facts.tokens, 0)
    assert {finding.code for finding in record.findings} == {"NUM012", "NUM019"}
    assert facts.reference.endswith("fp64" if dtype == "fp32" else "fp32")


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp32", marks=pytest.mark.slow)])
def test_every_scaled_node_is_the_one_that_is_named(llama: TinyRelease, shared: Path, dtype: str) -> None:
    for node in llama.skeleton.nodes:
        target = InProcessTarget(f"eager@cpu/{dtype}", {node.name: scaled(1.01)})
        record = measured(llama, target, shared)
        assert [block.name for block in record.facts.blocks if block.verdict == "fail"] == [node.name]
        assert record.facts.first_fault is not None
        assert record.facts.first_fault.block == node.name
        assert record.verdict == "fail"


def test_after_a_large_fault_the_rest_is_inherited(llama: TinyRelease, shared: Path) -> None:
    record = measured(llama, InProcessTarget("eager@cpu/fp32", {"model.layers.0": scaled(1.5)}), shared)
    verdicts = {block.name: block.verdict for block in record.facts.blocks}
    assert verdicts["model.layers.0"] == "fail"
    assert verdicts["model.layers.1"] == "inherited"
    assert verdicts["lm_head"] == "inherited"
    assert verdicts["model.embed_tokens"] == "pass"
    assert "NUM010" in [finding.code for finding in record.findings]


def test_nan_shape_and_death_are_found_where_they_are_and_the_rest_is_compared(
    llama: TinyRelease, shared: Path
) -> None:
    def with_nan(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.clone()
        tensor[0, 3, 3] = math.nan
        return tensor

    faults = {
        "NUM003": (with_nan, "nonfinite 1 is beyond 0"),
        "NUM004": (lambda tensor: tensor[..., :-1], "shape"),
        "NUM002": (dies, "crash"),
    }
    for code, (fault, said) in faults.items():
        record = measured(llama, InProcessTarget("eager@cpu/bf16", {"model.layers.1": fault}), shared)
        verdicts = {block.name: block.verdict for block in record.facts.blocks}
        assert verdicts["model.layers.1"] == "fail"
        assert verdicts["model.layers.0"] == verdicts["model.embed_tokens"] == "pass"
        assert record.facts.blocks[-1].local is not None
        assert [name for name, verdict in verdicts.items() if verdict == "fail"] == ["model.layers.1"]
        found = next(finding for finding in record.findings if finding.code == code)
        assert found.subject.name == "model.layers.1"
        assert said in found.message
        assert record.facts.first_fault is not None
        assert record.facts.first_fault.block == "model.layers.1"


def test_another_dtype_is_a_fault_of_the_node_that_gives_it(llama: TinyRelease, shared: Path) -> None:
    faults = {"model.layers.1": lambda tensor: tensor.float(), "lm_head": lambda tensor: tensor.float()}
    record = measured(llama, InProcessTarget("eager@cpu/bf16", faults), shared)
    verdicts = {block.name: (block.verdict, block.reason) for block in record.facts.blocks}
    said = "dtype: the target gives float32 where the reference gives bfloat16"
    assert verdicts["model.layers.1"] == ("fail", said)
    assert [name for name, (verdict, _) in verdicts.items() if verdict == "fail"] == ["model.layers.1"]
    assert record.facts.first_fault is not None
    assert record.facts.first_fault.metric == "dtype"
    assert (record.facts.first_fault.block, record.facts.first_fault.detail) == ("model.layers.1", said)


def test_a_missing_operator_and_the_log_reach_the_finding(llama: TinyRelease, shared: Path) -> None:
    record = measured(llama, InProcessTarget("eager@cpu/bf16", {"model.norm": lacks_an_operator}), shared)
    found = next(finding for finding in record.findings if finding.code == "NUM002")
    assert "aten::silu.out" in found.message
    record = measured(llama, InProcessTarget("eager@cpu/bf16", {"model.norm": dies}), shared)
    found = next(finding for finding in record.findings if finding.code == "NUM002")
    assert any("Segmentation fault" in line for line in found.evidence)


def test_a_kind_that_hangs_is_not_waited_for_at_every_node(llama: TinyRelease, shared: Path) -> None:
    tries = 0

    def hangs(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal tries
        tries += 1
        raise WorkerTimeout("no answer after 60 s")

    layers = [node.name for node in llama.skeleton.nodes if node.role == "layer"]
    record = measured(llama, InProcessTarget("eager@cpu/bf16", dict.fromkeys(layers, hangs)), shared)
    assert tries == 2
    verdicts = {block.name: (block.verdict, block.reason) for block in record.facts.blocks}
    assert [name for name, (verdict, _) in verdicts.items() if verdict == "fail"] == layers[:2]
    said = f"unsupported: not tried: {layers[0]} and {layers[1]}, which are of the same kind, hung"
    assert verdicts[layers[2]] == ("unverified", said)
    assert [finding.code for finding in record.findings].count("NUM002") == 1


def test_a_node_that_hangs_on_one_prompt_leaves_the_others_of_its_kind_alone(
    llama: TinyRelease, shared: Path
) -> None:
    def hangs(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape[1] == 1:
            raise WorkerTimeout("no answer after 60 s")
        return tensor

    target = InProcessTarget("eager@cpu/bf16", {"model.layers.1": hangs})
    record = measured(llama, target, shared, prompts="texts,decode")
    verdicts = {block.name: block.verdict for block in record.facts.blocks}
    assert [name for name, verdict in verdicts.items() if verdict == "fail"] == ["model.layers.1"]
    assert verdicts["model.layers.2"] == "pass"


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


def test_a_killed_run_goes_on_after_the_last_node_and_repeats_nothing(
    llama: TinyRelease, tmp_path: Path
) -> None:
    whole = measured(llama, InProcessTarget("eager@cpu/bf16"), tmp_path / "whole")

    def kills(tensor: torch.Tensor) -> torch.Tensor:
        raise Killed

    first = InProcessTarget("eager@cpu/bf16", {"model.layers.1": kills})
    first.describe = InProcessTarget("eager@cpu/bf16").describe  # type: ignore[method-assign]  # the same target
    with pytest.raises(Killed):
        measured(llama, first, tmp_path / "killed")
    second = InProcessTarget("eager@cpu/bf16")
    again = measured(llama, second, tmp_path / "killed")
    assert again.facts_digest == whole.facts_digest
    assert again.observations.nodes_reused == 3
    assert "model.layers.0" not in second.runs
    third = InProcessTarget("eager@cpu/bf16")
    assert measured(llama, third, tmp_path / "killed").facts_digest == whole.facts_digest
    assert third.runs == []


def test_a_fresh_run_asks_the_target_again_and_keeps_the_reference(
    llama: TinyRelease, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measured(llama, InProcessTarget("eager@cpu/bf16"), shared)
    read: list[str] = []
    load = Arm.load

    def noted(arm: Arm, node: Node, weights: Mapping[str, torch.Tensor]) -> None:
        read.append(node.name)
        load(arm, node, weights)

    monkeypatch.setattr(Arm, "load", noted)
    target = InProcessTarget("eager@cpu/bf16")
    fresh = measured(llama, target, shared, salt="run-2")
    assert fresh.facts_digest == whole.facts_digest
    assert len(set(target.runs)) == len(llama.skeleton.nodes)
    assert set(read) == {"lm_head"}


def test_what_a_target_does_not_claim_is_unverified(llama: TinyRelease, tmp_path: Path) -> None:
    record = measured(llama, InProcessTarget("eager@cpu/bf16", capabilities=("op",)), tmp_path)
    assert record.verdict == "unverified"
    assert [finding.code for finding in record.findings] == ["NUM009"]
    record = measured(llama, InProcessTarget("eager@cpu/int8"), tmp_path)
    assert [finding.code for finding in record.findings] == ["NUM014"]


_SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("gemma3_text", "gpt_oss", "deepseek_v3", "mamba2", "qwen3_next", "mixtral")
]


@pytest.mark.parametrize("model_type", ["qwen3_moe", *_SLOW])
def test_other_families_pass_clean_and_fail_at_the_scaled_layer(
    tiny: Tiny, tmp_path: Path, model_type: str
) -> None:
    model = tiny(model_type)
    record = measured(model, InProcessTarget("eager@cpu/bf16"), tmp_path)
    assert [block.reason for block in record.facts.blocks if block.verdict != "pass"] == []
    layer = [node.name for node in model.skeleton.nodes if node.role == "layer"][-1]
    record = measured(model, InProcessTarget("eager@cpu/bf16", {layer: scaled(1.01)}), tmp_path)
    assert [block.name for block in record.facts.blocks if block.verdict == "fail"] == [layer]


def copied(tiny: TinyRelease, folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> TinyRelease:
    """The release with its tensors changed, in a folder of its own."""
    folder.mkdir()
    tensors: dict[str, torch.Tensor] = {}
    for shard in sorted(tiny.folder.glob("*.safetensors")):
        tensors |= load_file(shard)
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text((tiny.folder / "config.json").read_text())
    return TinyRelease(folder)


def test_nan_in_the_weights_is_told_at_its_node_also_when_everything_is_reused(
    llama: TinyRelease, tmp_path: Path
) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.mlp.up_proj.weight"][2, 3] = math.nan

    model = copied(llama, tmp_path / "release", spoil)
    for _ in range(2):
        record = measured(model, InProcessTarget("eager@cpu/bf16"), tmp_path)
        found = next(finding for finding in record.findings if finding.code == "NUM006")
        assert found.subject.name == "model.layers.1"
        assert "1 in mlp.up_proj.weight" in found.message
        verdicts = {block.name: block.verdict for block in record.facts.blocks}
        assert verdicts["model.layers.0"] == "pass"
        assert verdicts["model.layers.1"] == verdicts["lm_head"] == "unverified"
        assert record.verdict == "fail"
        rest = next(finding for finding in record.findings if finding.code == "NUM008")
        assert rest.subject.name == "model.layers.1"
        assert rest.message.startswith(
            "Not compared from model.layers.1 on (model.layers.1, model.layers.2, model.norm, lm_head): "
        )


def test_a_node_of_zeros_is_not_called_right(llama: TinyRelease, tmp_path: Path) -> None:
    def clear(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm.weight"].zero_()

    model = copied(llama, tmp_path / "release", clear)
    clean = measured(model, InProcessTarget("eager@cpu/bf16"), tmp_path)
    wrong = measured(model, InProcessTarget("eager@cpu/bf16", {"model.norm": scaled(1.01)}), tmp_path)
    for record in (clean, wrong):
        verdicts = {block.name: block.verdict for block in record.facts.blocks}
        assert {name for name, said in verdicts.items() if said != "pass"} == {"model.norm", "lm_head"}
        found = next(finding for finding in record.findings if finding.code == "NUM016")
        assert found.subject.name == "model.norm"
        assert "from model.norm on (model.norm, lm_head)" in found.message
        assert record.verdict == "unverified"
    other = InProcessTarget("eager@cpu/bf16", {"lm_head": lambda tensor: tensor + 1})
    assert [b.name for b in measured(model, other, tmp_path).facts.blocks if b.verdict == "fail"] == [
        "lm_head"
    ]


@pytest.mark.parametrize("factor", [1.01, 0.99])
def test_elements_that_all_round_the_same_way_are_no_fault(tiny: Tiny, tmp_path: Path, factor: float) -> None:
    model = tiny("gpt_oss")  # its YaRN scales cosines and sines by one factor
    assert measured(model, InProcessTarget("eager@cpu/bf16"), tmp_path).verdict == "pass"
    for node in model.skeleton.nodes:
        record = measured(model, InProcessTarget("eager@cpu/bf16", {node.name: scaled(factor)}), tmp_path)
        assert [block.name for block in record.facts.blocks if block.verdict == "fail"] == [node.name]


@pytest.mark.parametrize(("prompts", "told"), [("image", True), ("all", True), ("auto", False)])
def test_images_asked_of_a_model_of_text_are_said_not_to_have_run(
    llama: TinyRelease, tmp_path: Path, prompts: str, told: bool
) -> None:
    record = measured(llama, InProcessTarget("eager@cpu/bf16"), tmp_path, prompts=prompts)
    assert record.facts.logits is not None
    reasons = {prompt.name: prompt.reason for prompt in record.facts.logits.prompts}
    assert reasons.get("image") == ("the model takes no images" if told else None)
    said = [finding.message for finding in record.findings if finding.subject.name == "image"]
    assert said == (["The prompt image did not run: the model takes no images."] if told else [])
    assert reasons["texts"] == ""  # it always runs


def test_the_evidence_of_a_fault_names_the_prompts_that_showed_it(llama: TinyRelease, tmp_path: Path) -> None:
    target = InProcessTarget("eager@cpu/fp32", {"lm_head": scaled(1.5)})
    record = measured(llama, target, tmp_path, prompts="texts,decode")
    (finding,) = [finding for finding in record.findings if finding.code == "NUM001"]
    command = f"day0 compare {llama.folder} --target eager@cpu/fp32 --prompts texts,decode"
    assert command in finding.evidence


def test_missing_weights_end_the_comparison_and_keep_what_came_before(
    llama: TinyRelease, tmp_path: Path
) -> None:
    def remove(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["model.layers.2.mlp.up_proj.weight"]

    model = copied(llama, tmp_path / "release", remove)
    record = measured(model, InProcessTarget("eager@cpu/bf16"), tmp_path)
    verdicts = {block.name: block.verdict for block in record.facts.blocks}
    assert verdicts["model.layers.1"] == "pass"
    assert verdicts["model.layers.2"] == verdicts["lm_head"] == "unverified"
    (finding,) = [finding for finding in record.findings if finding.severity != "info"]
    assert finding.code == "NUM015"
    assert finding.message == (
        "model.layers.2 cannot run: the checkpoint lacks mlp.up_proj.weight; not compared: model.layers.2, "
        "model.norm, lm_head."
    )
    assert record.verdict == "blocked"


@pytest.mark.parametrize(
    ("kept", "first", "reason", "fetch"),
    [
        (
            ["model.safetensors.index.json", "model-00001-of-00003.safetensors"],
            "model.layers.1",
            "of the files that the index names, model-00002-of-00003.safetensors, "
            "model-00003-of-00003.safetensors are not there",
            "Fetch model-00002-of-00003.safetensors, model-00003-of-00003.safetensors, then",
        ),
        (
            [],
            "model.embed_tokens",
            "the checkpoint lacks weight; the release has no tensor files",
            "Fetch the tensor files of the release, then",
        ),
    ],
)
def test_files_that_are_missing_are_named_once_and_are_to_be_fetched(
    llama: TinyRelease, tmp_path: Path, kept: list[str], first: str, reason: str, fetch: str
) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    for name in ("config.json", *kept):
        shutil.copy(llama.folder / name, folder / name)
    record = measured(TinyRelease(folder), InProcessTarget("eager@cpu/bf16"), tmp_path)
    (finding,) = [finding for finding in record.findings if finding.severity != "info"]
    assert finding.code == "NUM015"
    assert finding.message.startswith(f"{first} cannot run: ")
    assert reason in finding.message
    assert finding.remedy.startswith(fetch)
    assert record.verdict == "blocked"


def test_prompt_is_continued_by_both_and_a_tokenizer_that_does_not_fit_is_told(
    llama: TinyRelease, tmp_path: Path
) -> None:
    model = copied(llama, tmp_path / "release", lambda tensors: None)
    known = [word for text in TEXTS for word in text.split() if word.isalpha() and word not in PROMPT.split()]
    words = {"<unk>": 0} | {word: number for number, word in enumerate(dict.fromkeys(known[:63]), 1)}
    save_tokenizer(words, model.folder)
    record = measured(model, InProcessTarget("eager@cpu/fp32"), tmp_path)
    said = record.facts.says
    assert said is not None
    assert said.agree
    assert len(said.reference.split()) == 8
    ids = torch.tensor([[0] * 4])  # four words that the tokenizer does not know
    with torch.no_grad():
        for _ in range(8):
            ids = torch.cat([ids, model.stock(ids).logits[:, -1:].argmax(-1)], 1)
    names = {number: word for word, number in words.items()}
    assert said.reference.split() == [names[int(token)] for token in ids[0, 4:]]
    wrong = InProcessTarget("eager@cpu/fp32", {"lm_head": lambda tensor: -tensor})
    other = measured(model, wrong, tmp_path).facts.says
    assert other is not None
    assert not other.agree
    save_tokenizer({"<unk>": 64}, model.folder)
    record = measured(TinyRelease(model.folder), InProcessTarget("eager@cpu/fp32"), tmp_path)
    assert "NUM013" in [finding.code for finding in record.findings]
    assert record.facts.says is None


@pytest.mark.parametrize(
    ("words", "unknown", "code", "said"),
    [
        ({"<unk>": 0, "Four": 1}, "<unk>", "NUM012", "makes 2 different token ids"),
        ({"<unk>": 0, "Four": 1}, "other", "NUM013", "cannot be used on a text"),
    ],
)
def test_with_a_tokenizer_of_other_words_or_one_that_fails_the_nodes_are_compared_on_drawn_tokens(
    llama: TinyRelease, tmp_path: Path, words: dict[str, int], unknown: str, code: str, said: str
) -> None:
    model = copied(llama, tmp_path / "release", lambda tensors: None)
    save_tokenizer(words, model.folder, unknown)
    record = measured(model, InProcessTarget("eager@cpu/bf16"), tmp_path)
    assert said in next(finding.message for finding in record.findings if finding.code == code)
    assert {block.verdict for block in record.facts.blocks} == {"pass"}


def save_tokenizer(words: dict[str, int], folder: Path, unknown: str = "<unk>") -> None:
    """A tokenizer of whole words."""
    tokenizer = Tokenizer(WordLevel(words, unk_token=unknown))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def test_after_an_overflow_nothing_is_said_of_what_receives_infinity(
    llama: TinyRelease, tmp_path: Path
) -> None:
    def enlarge(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.mlp.down_proj.weight"] *= 2.0**30
        tensors["model.layers.1.mlp.up_proj.weight"] *= 2.0**10

    model = copied(llama, tmp_path / "release", enlarge)
    record = measured(model, InProcessTarget("eager@cpu/fp16"), tmp_path)
    verdicts = {block.name: block.verdict for block in record.facts.blocks}
    assert verdicts["model.layers.0"] == "pass"
    assert [name for name, verdict in verdicts.items() if verdict == "fail"] == ["model.layers.1"]
    assert verdicts["model.layers.2"] == verdicts["model.norm"] == "unverified"
    assert record.verdict == "fail"

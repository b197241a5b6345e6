from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models import parameters, raw_tensors
from day0.adapters.models.node_weights import NodeWeights, WeightReader
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.models.weights import resolve_weights
from day0_worker.weights import evaluate, evaluate_into
from support import quantised_weights as formats
from support.local_hub import LocalHub
from support.tiny_releases import TinyRelease

from .test_quantised_leaves import FORMATS, write

Tiny = Callable[[str], TinyRelease]
LAYER, HALF = "model.layers.1", torch.bfloat16


def dtypes(node: Node, dtype: torch.dtype = HALF) -> dict[str, torch.dtype]:
    """As a model holds them, which keeps routers' corrections in fp32."""
    return {name: torch.float32 if "correction" in name else dtype for name in node.weights}


def same(ours: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> bool:
    return set(ours) == set(wanted) and all(
        ours[name].dtype == wanted[name].dtype and torch.equal(ours[name], wanted[name]) for name in wanted
    )


def plain(node: Node, release: Release) -> dict[str, torch.Tensor]:
    """Parameters as the worker's own evaluation of the recipes gives them."""
    found = resolve_weights(node, release.checkpoint)
    return {name: evaluate(expression, {}) for name, expression in found.items()}


def cast(weights: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.dtype]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(wanted[name]) for name, tensor in weights.items()}


def stored_bytes(node: Node, release: Release, chosen: Callable[[str], bool] = lambda name: True) -> int:
    names = {tensor for name, recipe in node.weights.items() if chosen(name) for tensor in recipe.tensors}
    return sum(release.checkpoint.tensors[name].bytes for name in names)


@pytest.fixture
def quantised(tiny: Tiny, tmp_path: Path) -> tuple[Release, Skeleton]:
    write(tiny("deepseek_v3"), tmp_path / "fp8", *FORMATS["fp8_block"])
    release = open_release(str(tmp_path / "fp8"))
    return release, build_skeleton(release)


@pytest.fixture
def reader(quantised: tuple[Release, Skeleton]) -> Iterator[WeightReader]:
    made = WeightReader(quantised[0].checkpoint, budget=2**20)
    yield made
    made.close()


@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16, torch.float32])
def test_each_side_gets_the_same_weights_in_its_dtype(
    quantised: tuple[Release, Skeleton], reader: WeightReader, target: torch.dtype
) -> None:
    release, skeleton = quantised
    for node in skeleton.nodes:
        wanted, exact = dtypes(node, target), plain(node, release)
        weights = reader.open(node, wanted, without_experts=False)
        assert same(weights.exact(), exact)
        lowered = cast(exact, wanted)
        assert same(weights.lowered(), lowered)
        assert same({name: evaluate(sent, {}) for name, sent in weights.sent().items()}, lowered)
        weights.close()


def test_sides_may_ask_in_any_order_and_only_once_or_more(
    quantised: tuple[Release, Skeleton], reader: WeightReader
) -> None:
    release, skeleton = quantised
    node = skeleton.node(LAYER)
    exact = plain(node, release)
    for order in ("sent lowered exact", "lowered exact sent", "exact exact lowered lowered"):
        weights = reader.open(node, dtypes(node), without_experts=False)
        for what in order.split():
            got = getattr(weights, what)()
            if what == "sent":
                got = {name: evaluate(sent, {}) for name, sent in got.items()}
            assert same(got, exact if what == "exact" else cast(exact, dtypes(node)))
        weights.close()


def test_each_byte_is_read_and_each_weight_dequantised_once(
    quantised: tuple[Release, Skeleton], reader: WeightReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, skeleton = quantised
    node = skeleton.node(LAYER)
    filled: list[int] = []

    def counted(*args: Any) -> None:
        filled.append(1)
        evaluate_into(*args)

    monkeypatch.setattr(parameters, "evaluate_into", counted)
    weights = reader.open(node, dtypes(node), without_experts=True)
    inside = [name for name in node.weights if not name.startswith("mlp.experts.")]
    dict(weights.exact()), dict(weights.lowered()), weights.sent()
    made = [name for name in inside if "dequantize" in node.weights[name].expression]
    assert made
    assert len(filled) == len(made)
    assert reader.bytes_read == stored_bytes(node, release, lambda name: name in inside)
    weights.close()


def test_what_the_target_takes_as_it_is_stays_where_it_is(tiny: Tiny) -> None:
    model = tiny("llama")
    node = model.skeleton.node("model.layers.0")
    reader = WeightReader(model.release.checkpoint)
    weights = reader.open(node, dtypes(node), without_experts=True)
    before = spooled()
    assert same(weights.lowered(), plain(node, model.release))
    for leaf in weights.sent().values():
        assert Path(leaf["file"]).parent == model.folder
    assert spooled() == before
    reader.close()


def spooled() -> set[str]:
    """Files that this process placed weights into and that are still there, those of other tests included."""
    return {name for name in os.listdir("/dev/shm") if f"day0-spool-{os.getpid()}-" in name}


EXPERT_MODELS = ["deepseek_v3", "qwen3_moe", "gpt_oss"]


@pytest.mark.parametrize("model_type", EXPERT_MODELS)
def test_experts_come_alone(tiny: Tiny, model_type: str) -> None:
    model, before = tiny(model_type), spooled()
    node = model.skeleton.node(LAYER)
    reader = WeightReader(model.release.checkpoint)
    weights = reader.open(node, dtypes(node), without_experts=True)
    whole = plain(node, model.release)
    prefix = f"{node.experts}."
    assert set(weights.exact()) == {name for name in whole if not name.startswith(prefix)}
    parts = {name.removeprefix(prefix): t for name, t in whole.items() if name.startswith(prefix)}
    assert weights.expert_bytes == sum(4 * tensor[0].numel() for tensor in parts.values())
    for ids in ([2], [3, 0], [0, 1, 2, 3]):
        read = reader.bytes_read
        stack = weights.experts(ids)
        assert list(stack.ids) == ids
        wanted = {name: tensor[ids] for name, tensor in parts.items()}
        assert same(stack.exact, wanted)
        assert same(stack.lowered, {name: tensor.bfloat16() for name, tensor in wanted.items()})
        sent = {name: evaluate(expression, {}) for name, expression in stack.sent.items()}
        assert same(sent, {name: tensor.bfloat16() for name, tensor in wanted.items()})
        each = stored_bytes(node, model.release, lambda name: name.startswith(prefix)) // len(whole[
            f"{prefix}gate_up_proj"])  # fmt: skip
        assert reader.bytes_read - read == each * len(ids)
    weights.close()
    reader.close()
    assert not spooled() - before


def test_a_stack_that_is_held_is_never_written_over(
    quantised: tuple[Release, Skeleton], reader: WeightReader
) -> None:
    release, skeleton = quantised
    node = skeleton.node(LAYER)
    whole = plain(node, release)["mlp.experts.down_proj"]
    weights, before = reader.open(node, dtypes(node), without_experts=True), spooled()
    first = weights.experts([0, 1])
    sent = first.sent["down_proj"]
    tensor = weights.experts([2, 3]).lowered["down_proj"]
    for start in range(6):
        later = weights.experts([start, start + 1])
        assert torch.equal(later.lowered["down_proj"], whole[[start, start + 1]].bfloat16())
        assert torch.equal(evaluate(sent, {}), whole[[0, 1]].bfloat16())
        assert torch.equal(tensor, whole[[2, 3]].bfloat16())
    assert torch.equal(first.exact["down_proj"], whole[[0, 1]])
    assert len(spooled() - before) <= 4
    weights.close()


def test_files_of_stacks_that_are_gone_are_used_again_but_not_at_once(
    quantised: tuple[Release, Skeleton], reader: WeightReader
) -> None:
    node = quantised[1].node(LAYER)
    weights = reader.open(node, dtypes(node), without_experts=True)
    files = [weights.experts([index]).sent["down_proj"]["file"] for index in range(6)]
    assert len(set(files)) == 2
    assert all(one != other for one, other in itertools.pairwise(files))
    weights.close()


def test_experts_that_cannot_be_taken_apart_are_read_whole(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    from day0.adapters.models import node_weights

    def refuses(*args: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(node_weights, "compacted", refuses)
    model = tiny("qwen3_moe")
    node = model.skeleton.node(LAYER)
    reader = WeightReader(model.release.checkpoint)
    weights = reader.open(node, dtypes(node, torch.float32), without_experts=True)
    whole = plain(node, model.release)["mlp.experts.down_proj"]
    stack = weights.experts([3, 1])
    assert torch.equal(stack.exact["down_proj"], whole[[3, 1]])
    assert torch.equal(stack.lowered["down_proj"], whole[[3, 1]].float())
    weights.close()
    reader.close()


def test_weights_that_cannot_be_read_name_the_node(quantised: tuple[Release, Skeleton]) -> None:
    release, skeleton = quantised
    node = skeleton.node(LAYER)
    reader = WeightReader(release.checkpoint)
    weights = reader.open(node, dtypes(node), without_experts=True)
    path = Path(weights.sent()["input_layernorm.weight"]["file"])
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=r"model\.layers\.1 cannot be read") as caught:
        dict(weights.exact())
    assert caught.value.code == "E461"
    weights.close()
    reader.close()


# --- from afar ----------------------------------------------------------------------------------------------


@pytest.fixture
def remote(
    tiny: Tiny, tmp_path: Path, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> tuple[LocalHub, Release, Release, Skeleton]:
    """A hub, the same release there and here, and its skeleton; it counts as too large for the disk."""
    monkeypatch.setattr(raw_tensors, "STAGED_BYTES", 0)
    write(tiny("deepseek_v3"), tmp_path / "int4", *FORMATS["int4"])
    local_hub.add("org/large", tmp_path / "int4")
    there, here = open_release("org/large"), open_release(str(tmp_path / "int4"))
    return local_hub, there, here, build_skeleton(here)


def served(hub: LocalHub) -> int:
    return sum(count for path, count in hub.served.items() if path.endswith(".safetensors"))


def read_node(weights: NodeWeights, node: Node, chunks: int = 2) -> dict[str, torch.Tensor]:
    found = {name: tensor.clone() for name, tensor in weights.exact().items()}
    dict(weights.lowered()), weights.sent()
    for start in range(0, 8, 8 // chunks) if node.experts else ():
        stack = weights.experts(range(start, start + 8 // chunks))
        for name, tensor in stack.exact.items():
            found.setdefault(f"{node.experts}.{name}", torch.empty(8, *tensor.shape[1:]))[list(stack.ids)] = (
                tensor
            )
        dict(stack.lowered)
    return found


@pytest.mark.parametrize("budget", [0, 2**20])
def test_a_large_release_is_read_by_ranges_and_kept_nowhere(
    remote: tuple[LocalHub, Release, Release, Skeleton], tmp_path: Path, budget: int
) -> None:
    hub, there, here, skeleton = remote
    before, cached = served(hub), sum(file.stat().st_size for file in tmp_path.glob("hub-cache/**/*"))
    reader = WeightReader(there.checkpoint, budget=budget)
    total = 0
    for place, node in enumerate(skeleton.nodes):
        weights = reader.open(node, dtypes(node), without_experts=True)
        if place + 1 < len(skeleton.nodes):
            reader.prefetch(skeleton.nodes[place + 1])
        found = read_node(weights, node)
        assert same({name: tensor.float() for name, tensor in found.items()},
                    {name: tensor.float() for name, tensor in plain(node, here).items()})  # fmt: skip
        total += stored_bytes(node, here)
        weights.close()
    reader.close()
    fetched = served(hub) - before
    assert fetched == reader.bytes_read
    assert total <= fetched <= total * 1.05
    assert sum(file.stat().st_size for file in tmp_path.glob("hub-cache/**/*")) == cached


def test_experts_are_fetched_alone_and_once_more_only_where_nothing_was_kept(
    remote: tuple[LocalHub, Release, Release, Skeleton],
) -> None:
    _, there, here, skeleton = remote
    node = skeleton.node(LAYER)
    one = stored_bytes(node, here, lambda name: name.startswith("mlp.experts.")) // 8
    for budget, again in ((0, one), (2**20, 0)):
        reader = WeightReader(there.checkpoint, budget=budget)
        weights = reader.open(node, dtypes(node), without_experts=True)
        dict(weights.exact())
        base = reader.bytes_read
        weights.prefetch_experts([5])
        read: list[int] = []
        for _ in range(2):
            dict(weights.experts([5]).exact)
            read.append(reader.bytes_read - base)
        assert one <= read[0] <= one * 1.1
        assert read[1] - read[0] <= again * 1.1
        assert (read[1] > read[0]) == bool(again)
        weights.close()
        reader.close()


def test_a_small_release_is_staged_as_it_is_for_other_stages(
    tiny: Tiny, local_hub: LocalHub, tmp_path: Path
) -> None:
    local_hub.add("org/small", tiny("qwen3_moe").folder)
    there = open_release("org/small")
    skeleton = build_skeleton(there)
    for again in (False, True):
        before = served(local_hub)
        reader = WeightReader(there.checkpoint, budget=2**20)
        reader.prefetch(skeleton.nodes[0])
        for place, node in enumerate(skeleton.nodes):
            weights = reader.open(node, dtypes(node), without_experts=True)
            if place + 1 < len(skeleton.nodes):
                reader.prefetch(skeleton.nodes[place + 1])
            exact = plain(node, tiny("qwen3_moe").release)
            inside = {name: tensor for name, tensor in exact.items() if not name.startswith("mlp.experts.")}
            assert same(weights.exact(), inside)
            weights.close()
        reader.close()
        assert (served(local_hub) > before) is not again


def test_a_release_that_ends_early_says_where(
    remote: tuple[LocalHub, Release, Release, Skeleton], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, there, _, skeleton = remote
    source = there.checkpoint._source  # type: ignore[attr-defined]  # how a file gets shorter meanwhile
    monkeypatch.setattr(source, "stream", lambda path, start, stop: iter([b"x" * (stop - start - 1)]))
    reader = WeightReader(there.checkpoint)
    node = skeleton.node(LAYER)
    weights = reader.open(node, dtypes(node), without_experts=True)
    with pytest.raises(CheckpointError, match="ended at byte") as caught:
        dict(weights.exact())
    assert caught.value.code == "E301"
    reader.close()


def test_formats_of_one_layer_are_read_alike_whoever_asks(tiny: Tiny, tmp_path: Path) -> None:
    meant = write(tiny("llama"), tmp_path / "gptq", formats.gptq, FORMATS["gptq"][1])
    release = open_release(str(tmp_path / "gptq"))
    node = build_skeleton(release).node(LAYER)
    reader = WeightReader(release.checkpoint)
    weights = reader.open(node, dtypes(node, torch.float16), without_experts=False)
    assert torch.equal(weights.exact()["mlp.up_proj.weight"], meant[f"{LAYER}.mlp.up_proj.weight"])
    assert torch.equal(weights.lowered()["mlp.up_proj.weight"], meant[f"{LAYER}.mlp.up_proj.weight"].half())
    weights.close()
    reader.close()

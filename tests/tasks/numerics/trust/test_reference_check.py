from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as RawTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from day0.adapters.base.skeleton import Skeleton
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.likelihood import Likelihood
from day0.adapters.models.skeleton import build_skeleton
from day0.adapters.models.stock_model import StockLogits
from day0.adapters.models.tokenizer import Tokenizer, load_tokenizer
from day0.reports.page.numerics_check import check_notice
from day0.tasks.numerics.record_parts import ReferenceCheck
from day0.tasks.numerics.trust.reference_check import (
    against_stock,
    check_findings,
    check_reference,
    judge_likelihood,
    streaming_arms,
)
from day0.tasks.numerics.trust.samples import Sample
from support.fp8_blocks import save_fp8_blocks, without_scales
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
TOKENS = [3, 9, 27, 17, 51, 25, 11, 33, 35, 41, 59, 49]
ROOM, NO_ROOM = 4 * 2**30, 2**20


def test_a_reference_that_reads_rightly_equals_stock_and_one_that_drops_block_scales_does_not(
    tiny: Tiny, tmp_path: Path
) -> None:
    release = open_release(str(save_fp8_blocks(tiny("llama").folder, tmp_path / "fp8", block=16)))
    skeleton = build_skeleton(release)
    ours = streaming_arms(release, skeleton).exact(TOKENS)
    right = check_reference(release, skeleton, ours, TOKENS, ROOM)
    assert (right.state, right.method) == ("pass", "from_pretrained")
    assert float(right.value) < 1e-6
    assert check_findings(right, "fp8") == []

    dropped = without_scales(skeleton)
    wrong = check_reference(release, dropped, streaming_arms(release, dropped).exact(TOKENS), TOKENS, ROOM)
    assert (wrong.state, wrong.method) == ("fail", "from_pretrained")
    assert float(wrong.value) > 0.1
    (finding,) = check_findings(wrong, "fp8")
    assert (finding.code, finding.severity) == ("NUM020", "error")
    assert "its logits differ by" in finding.message


def test_random_weights_too_large_for_stock_are_unverified_and_say_why(tiny: Tiny) -> None:
    model = tiny("llama")
    ours = streaming_arms(model.release, model.skeleton).exact(TOKENS)
    check = check_reference(model.release, model.skeleton, ours, TOKENS, NO_ROOM)
    assert (check.state, check.method, check.value) == ("unverified", "none", "NaN")
    assert "it would take about 1.0 GiB, 0.0 GiB may be used" in check.detail
    assert "without a tokenizer" in check.detail
    (finding,) = check_findings(check, "tiny")
    assert (finding.code, finding.verdict.value) == ("NUM021", "unverified")


def _stock(logits: torch.Tensor | None) -> StockLogits:
    return StockLogits(logits, "" if logits is not None else "no room", "stock")


def _logits() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(100, 32)


def test_rounding_is_no_difference_and_one_wrong_position_is() -> None:
    ours = _logits()
    assert against_stock(ours * (1 + 1e-6), _stock(ours), routed=False).state == "pass"
    wrong = ours.clone()
    wrong[40, 3] += 0.01
    assert against_stock(wrong, _stock(ours), routed=False).state == "fail"


def test_a_mixture_of_experts_may_route_two_tokens_of_a_hundred_otherwise() -> None:
    ours = _logits()
    flipped = ours.clone()
    flipped[[40, 70]] *= 1.1
    assert against_stock(flipped, _stock(ours), routed=True).state == "pass"
    flipped[71] *= 1.1
    assert against_stock(flipped, _stock(ours), routed=True).state == "fail"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_on_one_side_alone_is_a_difference(value: float) -> None:
    ours, other = _logits(), _logits()
    ours[7, 7] = value
    assert against_stock(ours, _stock(other), routed=False).state == "fail"
    assert against_stock(other, _stock(ours), routed=False).state == "fail"


@pytest.mark.parametrize("routed", [False, True])
def test_one_sided_numbers_are_no_routing(routed: bool) -> None:
    """Two of a hundred tokens of a mixture may differ, but none may be finite on one side only."""
    ours = _logits()
    ours[7, 7] = float("nan")
    found = against_stock(ours, _stock(_logits()), routed=routed)
    assert (found.state, found.value) == ("fail", float("inf"))
    assert "the logits of 1 of 100 tokens are finite in it or in stock only" in found.detail


@pytest.mark.parametrize("rows", [slice(7, 8), slice(None)])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_finite_on_neither_side_shows_nothing(value: float, rows: slice) -> None:
    ours, count = _logits(), len(range(100)[rows])
    ours[rows] = value
    found = against_stock(ours, _stock(ours.clone()), routed=False)
    assert (found.state, found.method, math.isnan(found.value)) == ("unverified", "from_pretrained", True)
    assert f"the logits of {count} of 100 tokens are not finite, neither its own nor those of stock" in (
        found.detail
    )
    other = ours.clone()
    other[90] = 1.0
    if count == 1:  # what can be compared still objects
        assert against_stock(ours, _stock(other), routed=False).state == "fail"


def test_weights_that_are_not_finite_leave_the_reference_unproved(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "nan"
    shutil.copytree(tiny("llama").folder, folder)
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        if "model.layers.1.mlp.down_proj.weight" in tensors:
            tensors["model.layers.1.mlp.down_proj.weight"][:] = float("nan")
            save_file(tensors, file, metadata={"format": "pt"})
    release = open_release(str(folder))
    skeleton = build_skeleton(release)
    ours = streaming_arms(release, skeleton).exact(TOKENS)
    assert bool(ours.isnan().all())
    check = check_reference(release, skeleton, ours, TOKENS, ROOM)
    assert (check.state, check.method, check.value) == ("unverified", "from_pretrained", "NaN")
    (finding,) = check_findings(check, "nan")
    assert finding.code == "NUM021"
    assert "12 of 12 tokens are not finite" in finding.message
    assert "memory" not in finding.remedy
    assert "first node whose weights" in finding.remedy


def test_samples_that_do_not_hold_are_told_by_their_own_measure(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    tokenizer = _words(model, tmp_path)
    ours = streaming_arms(model.release, model.skeleton).exact(TOKENS)
    best = int(model.stock(torch.tensor([[5, 6]])).logits[0, -1].argmax())
    said = {True: f"w{best}", False: f"w{(best + 1) % 32}"}
    checks = {
        right: check_reference(
            model.release, model.skeleton, ours, TOKENS, ROOM, [Sample("w5 w6", text)], tokenizer=tokenizer
        )
        for right, text in said.items()
    }
    held, wrong = checks[True], checks[False]
    assert (held.state, held.decided_by) == ("pass", "from_pretrained,samples")
    assert (wrong.state, wrong.method, wrong.decided_by) == ("fail", "from_pretrained,samples", "samples")
    assert (wrong.value, wrong.limit) == (1.0, 0.0)
    (finding,) = check_findings(wrong, "tiny")
    assert finding.code == "NUM020"
    assert "file of samples" in finding.remedy
    told = check_notice(wrong).text
    assert "wrong by published sample outputs: 1 published sample that it continues otherwise" in told
    assert "from_pretrained" not in told


def _words(model: TinyRelease, folder: Path) -> Tokenizer:
    """A tokenizer of the words w0, w1, ..."""
    size = model.skeleton.config["vocab_size"]
    made = RawTokenizer(WordLevel({f"w{number}": number for number in range(size)}, unk_token="w0"))
    made.pre_tokenizer = WhitespaceSplit()
    shutil.copytree(model.folder, folder / "words")
    made.save(str(folder / "words" / "tokenizer.json"))
    tokenizer = load_tokenizer(open_release(str(folder / "words")))
    assert tokenizer is not None
    return tokenizer


def test_another_vocabulary_is_a_difference() -> None:
    assert against_stock(_logits()[:, :30], _stock(_logits()), routed=False).state == "fail"
    assert against_stock(_logits(), _stock(None), routed=False).state == "unverified"


CHARACTERS = 1655 / 393


@pytest.mark.parametrize(
    ("what", "nats", "copied", "initialised", "state"),
    [
        ("read rightly", 1.94, 0.20, False, "pass"),
        ("nobody knows whether it is trained", 1.94, 0.20, None, "pass"),
        ("block scales dropped", 16.04, 16.72, False, "fail"),
        ("block scales dropped, packed weights", 16.04, 16.72, None, "fail"),
        ("square matrices transposed", 8.39, 8.28, False, "fail"),
        ("k and v of one layer", 4.97, 4.70, False, "fail"),
        ("wrong rotary pairs", 5.31, 5.26, False, "fail"),
        ("rotary scaling where there is none", 3.63, 3.46, False, "fail"),
        ("wrong rotary base", 2.46, 2.87, False, "unverified"),
        ("another language", 9.0, 0.5, False, "unverified"),
        ("random weights", 10.98, 11.02, True, "unverified"),
        ("random weights of large spread", 14.0, 14.0, True, "unverified"),
        ("packed weights, unlikely", 9.0, 9.0, None, "unverified"),
        ("not a number", float("nan"), float("nan"), False, "fail"),
    ],
)
def test_likelihood(what: str, nats: float, copied: float, initialised: bool | None, state: str) -> None:
    found = Likelihood(nats, nats / CHARACTERS, copied, uniform=10.80)
    assert judge_likelihood(found, CHARACTERS, initialised).state == state, what


def test_characters_as_tokens_have_a_limit_of_their_own() -> None:
    found = Likelihood(0.6, 0.6, 0.1, uniform=5.5)
    assert judge_likelihood(found, 1.0, False).state == "pass"
    assert judge_likelihood(Likelihood(1.5, 1.5, 1.4, uniform=5.5), 1.0, False).state == "fail"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from day0.flows.demo_model import ensure_demo_model

    return ensure_demo_model(tmp_path_factory.mktemp("demo"))


@pytest.mark.slow
def test_a_real_model_is_likely_and_its_samples_hold(demo: Path) -> None:
    release = open_release(str(demo))
    skeleton, tokenizer = build_skeleton(release), load_tokenizer(release)
    assert tokenizer is not None
    arms = streaming_arms(release, skeleton)
    ids = tokenizer.encode("The capital of France is", special=True)
    check = check_reference(release, skeleton, arms.exact(ids), ids, NO_ROOM, tokenizer=tokenizer, arms=arms)
    assert (check.state, check.method) == ("pass", "likelihood")
    assert float(check.value) == pytest.approx(1.94, abs=0.02)

    said = _stock_continuation(demo, ids, 12)
    samples = [Sample("The capital of France is", said)]
    held = check_reference(release, skeleton, arms.exact(ids), ids, NO_ROOM, samples, tokenizer=tokenizer)
    assert (held.state, held.method) == ("pass", "likelihood,samples")
    samples = [Sample("The capital of France is", said.replace("Paris", "Rome"))]
    wrong = check_reference(release, skeleton, arms.exact(ids), ids, NO_ROOM, samples, tokenizer=tokenizer)
    assert (wrong.state, wrong.method) == ("fail", "likelihood,samples")
    assert "goes on with ' Rome' after 0 tokens, the reference with ' Paris'" in wrong.detail


def _stock_continuation(folder: Path, ids: Sequence[int], count: int) -> str:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    made = model.generate(torch.tensor([list(ids)]), max_new_tokens=count, do_sample=False)
    return str(AutoTokenizer.from_pretrained(folder).decode(made[0, len(ids) :]))


@pytest.mark.slow
def test_a_real_model_whose_scales_are_dropped_is_caught_without_stock(demo: Path, tmp_path: Path) -> None:
    release = open_release(str(save_fp8_blocks(demo, tmp_path / "fp8", block=64)))
    skeleton, tokenizer = build_skeleton(release), load_tokenizer(release)
    ids = list(range(100, 132))

    def check(read: Skeleton) -> ReferenceCheck:
        arms = streaming_arms(release, read)
        return check_reference(
            release, skeleton, arms.exact(ids), ids, NO_ROOM, tokenizer=tokenizer, arms=arms
        )

    right = check(skeleton)
    assert (right.state, right.method) == ("pass", "likelihood")
    wrong = check(without_scales(skeleton))
    assert (wrong.state, wrong.method) == ("fail", "likelihood")
    assert float(wrong.value) > 2 * float(right.limit)


def test_layers_swapped_by_the_reader_are_caught_by_stock(tiny: Tiny, tmp_path: Path) -> None:
    """Two layers of one kind have the same shapes, so only numbers tell."""
    folder = tmp_path / "swapped"
    shutil.copytree(tiny("llama").folder, folder)
    for file in folder.glob("*.safetensors"):
        names = {"model.layers.1.": "model.layers.2.", "model.layers.2.": "model.layers.1."}
        tensors = {}
        for name, tensor in load_file(file).items():
            start = next((start for start in names if name.startswith(start)), "")
            tensors[names.get(start, "") + name[len(start) :]] = tensor
        save_file(tensors, file, metadata={"format": "pt"})
    model = tiny("llama")
    index = (folder / "model.safetensors.index.json").read_text()
    for one, other in (("1.", "X."), ("2.", "1."), ("X.", "2.")):
        index = index.replace(f"layers.{one}", f"layers.{other}")
    (folder / "model.safetensors.index.json").write_text(index)
    swapped = open_release(str(folder))
    ours = streaming_arms(swapped, build_skeleton(swapped)).exact(TOKENS)
    assert check_reference(model.release, model.skeleton, ours, TOKENS, ROOM).state == "fail"

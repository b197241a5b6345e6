"""Names folded into patterns: exact sets, whatever the names; a bound on how many are told apart."""

from __future__ import annotations

import random
import re

import pytest

from day0.adapters.base.checkpoint import TensorBlock, TensorKind
from day0.adapters.checkpoints.table import TensorTable
from day0.tasks.inventory import patterns
from day0.tasks.inventory.patterns import Listing, list_tensors

ONE = TensorKind("bf16", (2, 3), 12)
TWO = TensorKind("fp32", (4,), 16)


def fold(*blocks: list[tuple[str, TensorKind]]) -> Listing:
    return list_tensors(
        TensorTable(
            [
                TensorBlock(
                    f"{number}.safetensors",
                    [name for name, _ in rows],
                    [kind for _, kind in rows],
                    [0] * len(rows),
                )
                for number, rows in enumerate(blocks)
            ]
        )
    )


def told(listing: Listing) -> dict[tuple[str, int | None, str], tuple[int, int, list[tuple[str, ...]]]]:
    return {
        (group.pattern.text, group.layer, group.dtype): (group.count, group.bytes, sorted(group.others))
        for group in listing.groups
    }


def test_experts_of_a_layer_in_several_files_are_one_group() -> None:
    names = [
        f"model.layers.{layer}.mlp.experts.{expert}.w1.weight" for layer in (0, 10) for expert in range(12)
    ]
    random.Random(1).shuffle(names)
    found = told(fold([(name, ONE) for name in names[:9]], [(name, ONE) for name in names[9:]]))
    pattern = "model.layers.{l}.mlp.experts.{e}.w1.weight"
    everyone = sorted((str(expert),) for expert in range(12))
    assert found == {(pattern, layer, "bf16"): (12, 144, everyone) for layer in (0, 10)}


def test_kinds_and_words_with_digits_stay_apart() -> None:
    rows = [(f"h.{layer}.w{number}", kind) for layer in (3, 4) for number in (1, 2) for kind in (ONE,)]
    found = told(fold([*rows, ("h.3.w12", TWO), ("0.weight", ONE), ("x.7", TWO)]))
    assert {key: count for key, (count, _, _) in found.items()} == {
        ("h.{l}.w1", 3, "bf16"): 1, ("h.{l}.w1", 4, "bf16"): 1, ("h.{l}.w2", 3, "bf16"): 1,
        ("h.{l}.w2", 4, "bf16"): 1, ("h.{l}.w12", 3, "fp32"): 1, ("0.weight", None, "bf16"): 1,
        ("x.{i}", None, "fp32"): 1,
    }  # fmt: skip


def test_further_indices_and_nested_experts_keep_their_places() -> None:
    rows = [
        (f"b.layers.{a}.attn.{b}.experts.{c}.w.{d}", ONE)
        for a in (1,)
        for b in (0, 1)
        for c in (5, 6)
        for d in (9,)
    ]
    nested = [(f"experts.2.layers.7.experts.{c}.experts.{d}.w", ONE) for c in (0, 1) for d in (3,)]
    found = told(fold([*rows, *nested]))
    assert found["b.layers.{l}.attn.{i}.experts.{e}.w.{i}", 1, "bf16"][2] == [
        ("0", "5", "9"), ("0", "6", "9"), ("1", "5", "9"), ("1", "6", "9"),
    ]  # fmt: skip
    assert [key for key in found if "experts.{e}.layers" in key[0]]
    assert sum(count for count, _, _ in found.values()) == 6


@pytest.mark.parametrize(
    "odd", ["a\0b.experts.1.w", "a\nb.experts.1.w", "", "\0", "..experts.1", "experts.1"]
)
def test_hostile_names_are_counted_like_others(odd: str) -> None:
    plain = [(f"layers.0.experts.{expert}.w", ONE) for expert in range(3)]
    listing = fold([*plain, (odd, TWO)])
    assert sum(group.count for group in listing.groups) == 4
    assert sum(group.bytes for group in listing.groups) == 3 * 12 + 16


def test_the_same_as_name_by_name() -> None:
    chosen = random.Random(7)
    words = ["layers", "experts", "attn", "w1", "3x", "blk"]
    names = {
        ".".join(
            str(chosen.randrange(12)) if chosen.random() < 0.4 else chosen.choice(words) for _ in range(6)
        )
        for _ in range(3_000)
    }
    listing = fold([(name, chosen.choice([ONE, TWO])) for name in sorted(names)])
    assert sum(group.count for group in listing.groups) == len(names)
    for group in listing.groups:
        assert group.count == max(1, len(group.others))
        assert re.sub(r"\{.\}", "0", group.pattern.text) == re.sub(
            r"(?<=\.)[0-9]+(?=\.|$)", "0", group.example
        )


def test_beyond_a_bound_names_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MAX_GROUPS", 5)
    kinds = [TensorKind("bf16", (number,), 2 * number) for number in range(20)]
    listing = fold([(f"n{number}", kind) for number, kind in enumerate(kinds)])
    assert len(listing.groups) == 6
    assert listing.groups[-1].pattern is patterns.FURTHER
    assert sum(group.elements for group in listing.groups) == sum(range(20))
    assert sum(group.bytes for group in listing.groups) == 2 * sum(range(20))

"""A difference in words: nothing is wider than the terminal but a name that cannot be broken."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from day0.flows.inventory_diff_text import diff_text
from day0.tasks.inventory.record_trust import SmallFile
from day0.tasks.inventory.structural_diff import structural_diff
from day0.tasks.inventory.take import take_inventory
from support.layouts import make_release
from support.small_releases import MIXTRAL, mixtral_tensors


def told(width: int) -> list[str]:
    before = mixtral_tensors()
    after: dict[str, Any] = {
        name: ("fp32" if "norm" in name else dtype, shape) for name, (dtype, shape) in before.items()
    }
    for layer in range(2):
        root = f"model.layers.{layer}.self_attn.indexer"
        for name in ("wq_b", "wk", "weights_proj"):
            after[f"{root}.{name}.weight"] = ("bf16", (16, 64))
        after[f"{root}.k_norm.weight"] = ("fp32", (16,))
    records = [take_inventory(make_release(MIXTRAL, tensors)) for tensors in (before, after)]
    return list(diff_text(structural_diff(*records), width))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit(width: int) -> None:
    lines = told(width)
    wide = [line for line in lines if len(line) > width and len(line.split()) > 2]
    assert wide == []
    assert not any(line != line.rstrip() for line in lines)


def test_dtypes_are_written_as_everywhere_below_the_headline() -> None:
    lines = told(120)
    assert "norms went from BF16 to F32" in lines[0]
    body = "\n".join(lines[1:])
    assert "bf16 -> fp32" in body
    assert "BF16" not in body


@pytest.mark.parametrize("width", range(50, 90, 3))
def test_a_number_stays_with_its_unit(width: int) -> None:
    assert not [line for line in told(width) if line.strip() in ("B", "kB", "MB")]
    assert any(line.endswith(" kB") for line in told(width))


def test_hashes_are_short() -> None:
    records = []
    for text in (b"a", b"b"):
        record = take_inventory(make_release(MIXTRAL, mixtral_tensors()))
        content = f"sha256:{hashlib.sha256(text).hexdigest()}"
        held = [SmallFile(path="tokenizer.json", size=1, content=content)]
        facts = record.facts.model_copy(update={"small_files": held})
        records.append(record.model_copy(update={"facts": facts}))
    lines = list(diff_text(structural_diff(*records), 120))
    assert lines[0] == "Same structure, other content: file tokenizer.json."
    assert lines[-1] == "  content of tokenizer.json  sha256 ca978112ca1b -> sha256 3e23e8160039"


def test_the_same_words_at_every_width() -> None:
    narrow, wide = (" ".join(" ".join(told(width)).replace(",", " ").split()) for width in (60, 400))
    assert narrow == wide

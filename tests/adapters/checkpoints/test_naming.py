"""Names of tensor files: which belong together, which number is left out."""

from __future__ import annotations

import pytest

from day0.adapters.checkpoints.naming import Family, families, number_of, renumbered


def family(*names: str) -> Family:
    (found,) = families([f"{name}.safetensors" for name in names], ".safetensors")
    return found


@pytest.mark.parametrize(
    ("names", "stem"),
    [
        (("model-00001-of-00003", "model-00003-of-00003"), "model"),
        (("model-1-of-3", "model-3-of-3"), "model"),
        (("Model-00001-Of-00003", "Model-00003-Of-00003"), "Model"),
        (("model_part_1_OF_3", "model_part_3_OF_3"), "model_part"),
        (("00001-of-00003", "00003-of-00003"), "*-of-00003"),
        (("model-00001-of-00003.fp16", "model-00003-of-00003.fp16"), "model.fp16"),
        (("model-00001-of-00003-int4", "model-00003-of-00003-int4"), "model-int4"),
    ],
)
def test_the_number_between_is_absent_however_it_is_written(names: tuple[str, ...], stem: str) -> None:
    found = family(*names)
    assert (found.stem, found.total, list(found.absent)) == (stem, 3, [2])
    middle = renumbered(names[0], 2)
    assert [number_of(name) for name in (names[0], middle, names[1])] == [1, 2, 3]
    assert family(names[0], middle, names[1]).absent == ()


def test_a_variant_is_a_set_of_its_own() -> None:
    names = [f"model-0000{number}-of-00002{end}.safetensors" for end in ("", ".fp16") for number in (1, 2)]
    found = families(names, ".safetensors")
    assert [(item.stem, len(item.files), list(item.absent)) for item in found] == [
        ("model", 2, []), ("model.fp16", 2, []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "skipped"),
    [
        ((1, 2, 3, 5), [4]),
        ((0, 1, 4, 5), [2, 3]),
        ((1, 2, 3, 4), []),
        ((1, 3), []),  # two numbers show no row
        ((1000, 2000, 3000), []),  # steps of a training, no row
    ],
)
def test_a_row_of_numbers_without_a_total_skips_none(numbers: tuple[int, ...], skipped: list[int]) -> None:
    found = family(*(f"model_{number}" for number in numbers))
    assert (list(found.skipped), list(found.absent)) == (skipped, [])


def test_a_name_without_a_number_is_left_alone() -> None:
    assert (renumbered("model", 3), number_of("model"), number_of("00012")) == ("model", None, None)
    assert renumbered("model-07-of-12", None) == "model-*-of-12"

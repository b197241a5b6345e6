from __future__ import annotations

import pytest

from day0.tasks.numerics.precision.lowerings import LOWERINGS, PrecisionError, lowerings_of


def test_names_are_taken_once_and_in_their_order() -> None:
    assert [one.dtype for one in lowerings_of(("int8", "fp8", "bf16", "fp8_e4m3"))] == [
        "int8",
        "fp8_e4m3",
        "bf16",
    ]
    assert lowerings_of(()) == ()


@pytest.mark.parametrize("name", ["fp32", "", "INT8", "fp4_e2m1"])
def test_others_are_refused_by_name(name: str) -> None:
    with pytest.raises(PrecisionError) as refused:
        lowerings_of(("int8", name))
    assert (refused.value.code, repr(name) in refused.value.message) == ("E464", True)


def test_bytes_of_matrices_vectors_and_roles_of_vectors() -> None:
    cast, scaled, groups = LOWERINGS["bf16"], LOWERINGS["fp8_e4m3"], LOWERINGS["int4"]
    matrix = (6, 300)
    assert cast.bytes_of(matrix, 1, "fp32", alone=False) == 3600
    assert scaled.bytes_of(matrix, 1, "bf16", alone=False) == 1800 + 4 * 6
    assert scaled.bytes_of(matrix, 0, "bf16", alone=False) == 1800 + 4 * 300
    assert groups.bytes_of(matrix, 1, "bf16", alone=False) == 900 + 2 * 6 * 3
    bias = (7,)
    assert cast.bytes_of(bias, None, "fp32", alone=False) == 14
    assert scaled.bytes_of(bias, None, "bf16", alone=False) == 14
    assert scaled.bytes_of(bias, None, "fp32", alone=False) == 28
    assert scaled.bytes_of(bias, None, "bf16", alone=True) == 7 + 4
    assert groups.bytes_of(bias, None, "bf16", alone=True) == 4 + 2

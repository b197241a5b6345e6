"""Which precisions are modelled, in what they are carried, what shares a scale."""

from __future__ import annotations

import pytest

from day0.tasks.numerics.precision.fake_noise import Carried, carried


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", "fp64"])
def test_what_the_reference_computes_in_is_not_modelled(precision: str) -> None:
    assert carried(precision, "bf16", {}) == Carried(precision)


@pytest.mark.parametrize("precision", ["fp4_e2m1", "e8m0", "fp6_e2m3", "fp8_e4m3fnuz", "uint8", "complex64"])
def test_what_has_no_scheme_cannot_be_compared(precision: str) -> None:
    assert carried(precision, "bf16", {}) is None


@pytest.mark.parametrize(("stored", "carrier"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "bf16")])
def test_narrow_precisions_are_carried_in_sixteen_bits(stored: str, carrier: str) -> None:
    for precision in ("fp8_e4m3", "fp8_e5m2", "int8", "int4"):
        found = carried(precision, stored, {})
        assert found is not None
        assert (found.dtype, found.precision) == (carrier, precision)


def test_scales_are_shared_as_the_release_states() -> None:
    blocks = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    found = carried("fp8_e4m3", "bf16", blocks)
    assert found is not None
    assert found.fake is not None
    assert (found.fake.matrices.unit, found.fake.inputs.unit, found.fake.inputs.size) == (
        "block",
        "group",
        128,
    )
    other = carried("int8", "bf16", blocks)
    assert other is not None
    assert other.fake is not None
    assert other.fake.matrices.unit == "channel"
    gptq = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
    packed = carried("int4", "fp16", gptq)
    assert packed is not None
    assert packed.fake is not None
    assert (packed.fake.matrices.unit, packed.fake.matrices.size) == ("group", 32)
    odd = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, "x"]}}
    assert carried("fp8_e4m3", "bf16", odd) == carried("fp8_e4m3", "bf16", {})

"""The policy: which roles may be lowered how far, on models with one role made fragile on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from day0.adapters.base.run_store import RunStore
from day0.tasks import thresholds
from day0.tasks.numerics.precision.lowered_stream import Cost
from day0.tasks.numerics.precision.lowerings import PrecisionError
from day0.tasks.numerics.precision.precision import bar, policy_of, raised, sweep_precision, trials_of
from day0.tasks.numerics.precision.precision_step import Local, Swept
from day0.tasks.numerics.prompts.tokens import Tokens
from day0.tasks.numerics.record_parts import Precision
from day0.tasks.numerics.walk.case import Case
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
Weights = dict[str, Tensor]
IDS = tuple(range(5, 29))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def changed(tiny: TinyRelease, folder: Path, change: Callable[[Weights], None], factor: float) -> TinyRelease:
    """The same model with other weights, whose outputs are sharp enough to lose something."""
    stock: Any = tiny.load("float32")
    weights = stock.state_dict()
    weights["model.norm.weight"].mul_(16)
    for name, value in weights.items():
        if "proj" in name and value.dim() > 1:
            value.mul_(factor)
    change(weights)
    stock.save_pretrained(folder)
    return TinyRelease(folder)


def swept(tiny: TinyRelease, folder: Path, dtypes: tuple[str, ...], dtype: str = "bf16") -> Precision:
    case = Case(
        skeleton=tiny.skeleton,
        checkpoint=tiny.release.checkpoint,
        dtype=dtype,
        store=RunStore(folder),
        target="",
        options={},
        tokens=Tokens(IDS),
    )
    return sweep_precision(case, dtypes)


def outlier_channels(weights: Weights) -> None:
    """One channel of the values is huge and its column in the output projection tiny: the same function.

    Powers of two, so that no bit is lost; a token's scale is then that of the huge channel.
    """
    for layer in range(3):
        value = weights[f"model.layers.{layer}.self_attn.v_proj.weight"]
        output = weights[f"model.layers.{layer}.self_attn.o_proj.weight"]
        value[3] *= 2.0**20
        for head in (0, 1):  # both query heads that share the first key and value head
            output[:, head * 8 + 3] /= 2.0**20


def huge_router(weights: Weights) -> None:
    """A channel that is always zero has huge weights in the router: no output changes, but every scale."""
    for layer in (1, 2):
        weights[f"model.layers.{layer}.post_attention_layernorm.weight"][5] = 0.0
        weights[f"model.layers.{layer}.mlp.gate.weight"].mul_(8)[:, 5] = 2.0**24


def test_outlier_channels_keep_attention_high(tiny: Tiny, tmp_path: Path) -> None:
    release = changed(tiny("llama"), tmp_path / "model", outlier_channels, 6.0)
    found = swept(release, tmp_path, ("fp8", "int8"))
    assert found.policy == {
        "embedding": "int8", "norm": "int8", "attention": "bf16", "dense_mlp": "int8", "head": "int8"
    }  # fmt: skip
    rows = {(row.role, row.dtype): row for row in found.rows}
    assert not rows["attention", "int8"].tolerates
    assert not rows["attention", "fp8_e4m3"].tolerates
    assert rows["attention", "int8"].worst.startswith("model.layers.")
    assert float(rows["attention", "int8"].ratio) > 10 * float(rows["dense_mlp", "int8"].ratio)
    assert 0 < float(found.kl) < float(rows["attention", "int8"].kl)


def test_a_router_of_huge_range_stays_high(tiny: Tiny, tmp_path: Path) -> None:
    release = changed(tiny("qwen3_moe"), tmp_path / "model", huge_router, 2.0)
    found = swept(release, tmp_path, ("int8",))
    assert found.policy == {
        "embedding": "int8", "norm": "int8", "attention": "int8", "router": "bf16", "expert": "int8",
        "dense_mlp": "int8", "head": "int8",
    }  # fmt: skip
    assert [row.role for row in found.rows] == list(found.policy)


def test_what_costs_too_much_together_is_raised_until_it_holds(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = swept(tiny("llama"), tmp_path, ("int8",))
    assert set(alone.policy.values()) == {"int8"}
    costs = {row.role: float(row.kl) for row in alone.rows}
    dearest = max(costs, key=lambda role: costs[role])
    between = (max(costs.values()) + float(alone.kl)) / 2
    monkeypatch.setattr("day0.tasks.numerics.precision.precision.bar", lambda swept: between)
    found = swept(tiny("llama"), tmp_path, ("int8",))
    assert found.policy == {**alone.policy, dearest: "bf16"}
    assert float(found.kl) <= between < float(alone.kl)


def test_two_sweeps_are_equal_and_bytes_are_counted(tiny: Tiny, tmp_path: Path) -> None:
    found = [swept(tiny("llama"), tmp_path / str(index), ("int4", "bf16"), "fp32") for index in range(2)]
    assert found[0] == found[1]
    sizes = {(row.role, row.dtype): row.bytes for row in found[0].rows}
    attention = 3 * (32 * 32 * 2 + 16 * 32 * 2)  # q and o, k and v of three layers
    assert sizes["attention", "bf16"] == 2 * attention
    assert sizes["attention", "int4"] == attention // 2 + 2 * 3 * (32 + 16 + 16 + 32)  # a scale a row
    assert sizes["head", "bf16"] == sizes["embedding", "bf16"] == 2 * 64 * 32
    norms = 3 * 2 + 1
    assert sizes["norm", "int4"] == norms * (32 // 2 + 2)


def test_where_the_model_is_too_large_its_nodes_alone_decide(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "NUMERICS_SWEEP_WORK", 0)
    release = changed(tiny("llama"), tmp_path / "model", outlier_channels, 6.0)
    found = swept(release, tmp_path, ("int8",))
    assert found.kl == "NaN"
    assert {(row.kl, row.top1) for row in found.rows} == {("NaN", "NaN")}
    assert [row.role for row in found.rows if not row.tolerates] == ["attention"]
    assert found.policy["attention"] == "bf16"


def test_weights_that_overflow_or_are_nan_tolerate_nothing(tiny: Tiny, tmp_path: Path) -> None:
    def overflow(weights: Weights) -> None:
        weights["model.layers.1.mlp.down_proj.weight"].mul_(2.0**22)

    found = swept(changed(tiny("llama"), tmp_path / "large", overflow, 6.0), tmp_path, ("fp16",))
    rows = {row.role: row for row in found.rows}
    assert (rows["dense_mlp"].kl, rows["dense_mlp"].rel_l2) == ("NaN", "Infinity")
    assert [role for role, row in rows.items() if not row.tolerates] == ["dense_mlp"]

    def broken(weights: Weights) -> None:
        weights["model.layers.1.mlp.down_proj.weight"][3, 3] = math.nan

    found = swept(changed(tiny("llama"), tmp_path / "nan", broken, 6.0), tmp_path, ("int8",))
    assert not any(row.tolerates for row in found.rows)
    assert set(found.policy.values()) == {"bf16"}
    assert found.kl == "NaN"


def test_an_unknown_precision_is_refused_before_anything_is_read(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(PrecisionError, match="'fp6' is no precision that can be tried") as refused:
        swept(tiny("llama"), tmp_path, ("int8", "fp6"))
    assert refused.value.code == "E464"


def tried(costs: dict[tuple[str, str], float], base: float = 1e-3, information: float = 8.0) -> Swept:
    local = {single: Local(0.01, 2.0, "node", 1) for single in costs}
    return Swept(local, {single: Cost(kl, 1.0) for single, kl in costs.items()}, Cost(base, 1.0), information)


def test_the_bar_is_a_multiple_of_the_targets_own_cost_with_a_floor() -> None:
    factor, floor = thresholds.NUMERICS_SWEEP_FACTOR, thresholds.NUMERICS_SWEEP_KL
    assert bar(tried({}, base=1.0)) == factor
    assert bar(tried({}, base=1e-9)) == floor
    assert bar(tried({}, base=math.nan)) == floor
    share = thresholds.NUMERICS_SWEEP_KL_SHARE
    assert bar(tried({}, base=1e-9, information=1e-3)) == pytest.approx(share * 1e-3)


def test_the_narrowest_that_is_tolerated_and_of_its_width_the_cheapest() -> None:
    costs = {("norm", "bf16"): 0.0, ("norm", "int8"): 2e-4, ("norm", "fp8_e4m3"): 1e-4, ("norm", "int4"): 1.0,
             ("head", "bf16"): math.nan, ("head", "int8"): math.nan, ("head", "fp8_e4m3"): 1.0,
             ("head", "int4"): math.inf}  # fmt: skip
    trials = trials_of(tried(costs))
    assert [trial.tolerates for trial in trials] == [True, True, True, False, *[False] * 4]
    assert policy_of(trials, ("norm", "head"), "bf16") == {"norm": "fp8_e4m3", "head": "bf16"}
    assert policy_of(trials, ("norm", "head"), "fp32") == {"norm": "fp8_e4m3", "head": "fp32"}


def test_the_costliest_role_is_raised_first_and_step_by_step() -> None:
    costs = {("norm", "bf16"): 0.0, ("norm", "int8"): 1e-4, ("head", "bf16"): 2e-4, ("head", "int8"): 3e-4}
    trials = trials_of(tried(costs))
    policy = policy_of(trials, ("norm", "head"), "fp32")
    assert list(raised(policy, trials, "fp32")) == [
        {"norm": "int8", "head": "int8"},
        {"norm": "int8", "head": "bf16"},
        {"norm": "int8", "head": "fp32"},
        {"norm": "bf16", "head": "fp32"},
        {"norm": "fp32", "head": "fp32"},
    ]

"""Numerics records as a run might leave them: one wrong layer or none, every optional part or none."""

from __future__ import annotations

import math
import random
from typing import Any

from day0.tasks.finding import Finding, Subject, make_finding
from day0.tasks.numerics.record import (
    Block,
    FirstFault,
    Logits,
    Metrics,
    NumericsFacts,
    NumericsObservations,
    NumericsRecord,
    PromptResult,
    Says,
)
from day0.tasks.numerics.record_parts import (
    BugResult,
    ImageFeatures,
    ImageResult,
    Manifest,
    Precision,
    PrecisionRow,
    ReferenceCheck,
    Routing,
    SelfTest,
    TaskMetric,
    Training,
    TrainingBlock,
)
from support.sample_records import MODEL, REVISION, any_code, fingerprint

REPRO = "import torch\n\nx = torch.tensor([1.0, 2.0])\nprint((x * 1.01 - x).norm() / x.norm())\n"
CHECKED = ReferenceCheck(
    state="pass",
    method="from_pretrained",
    detail="128 positions of the main prompt in fp32",
    value=1.4e-6,
    limit=1e-4,
)


def metrics(error: float, over_noise: float, score: float, **changes: Any) -> Metrics:
    return Metrics(
        rel_l2=error,
        cosine=1 - error**2 / 2,
        centred_cosine=1 - error**2 / 1.9,
        max_abs=error * 41,
        worst_token=error * 2.6,
        worst_channel=error * 3.1,
        gain=score * 3e-5,
        gain_score=score,
        ratio=over_noise,
        token_ratio=over_noise * 0.97,
        worst_ratio=over_noise * 1.2,
        channel_ratio=over_noise * 1.3,
        ulp=over_noise * 2.1,
    ).model_copy(update=changes)


def sample_blocks(
    layers: int, *, bad: int | None, scale: float, seed: int, factor: float = 2.1
) -> list[Block]:
    """Nodes of a decoder; layer `bad` is off by a coherent gain and `factor` times the noise more."""
    rng = random.Random(seed)
    names = [("model.embed_tokens", "embedding")]
    names += [(f"model.layers.{index}", "layer") for index in range(layers)]
    names += [("model.norm", "norm"), ("lm_head", "head")]
    blocks, carried, drift = [], scale * 0.2, scale * 0.2
    for place, (name, role) in enumerate(names):
        wrong = bad is not None and name == f"model.layers.{bad}"
        noise = scale * (0.6 + 0.5 * math.sin(place / 5) ** 2) * rng.uniform(0.85, 1.15)
        ratio = rng.uniform(0.7, 1.4) + (factor if wrong else 0.0)
        local = metrics(noise * ratio, ratio, 61.4 if wrong else rng.uniform(0.1, 4.0))
        before, carried = carried, math.hypot(carried, noise * ratio * (9 if wrong else 1))
        drift = math.hypot(drift, noise)
        inherited = bad is not None and role == "layer" and place - 1 > bad
        blocks.append(
            Block(
                name=name,
                role=role,
                local=local,
                propagated=metrics(carried, carried / drift, rng.uniform(0.1, 4.0)),
                growth=carried / before,
                verdict="fail" if wrong else "inherited" if inherited else "pass",
                reason="gain_score 61.4 is beyond 12" if wrong else "",
                signature=f"{place:032x}",
                largest=20.0 + place,
                headroom=(20.0 + place) / 3.39e38,
                band=0.0,
                bit_stable=True,
            )
        )
    return blocks


def sample_prompts(*, worst: str = "", not_run: bool = False) -> list[PromptResult]:
    """Of the shipped set, with the node that one of them finds wrong."""
    named = [
        ("texts", "several languages and code", 128),
        ("long", "positions beyond the short ones", 2048),
        ("padded", "one batch padded on both sides", 90),
        ("shifted", "position ids up to the model's maximum context", 32),
    ]
    prompts = [
        PromptResult(
            name=name, purpose=why, tokens=tokens, kl=2.9e-3, top1=0.984, top5=0.97, worst_block=worst
        )
        for name, why, tokens in named
    ]
    if not_run:
        prompts.append(
            PromptResult(name="window", purpose="beyond the sliding window", reason="the model has no window")
        )
    return prompts


def sample_routing(layers: int = 6, *, unexplained: int = 0, unknown: bool = False) -> list[Routing]:
    """A router each layer; the last but one has flips that rounding does not explain."""
    routers = []
    for index in range(layers):
        strange = unexplained if index == layers - 2 else 0
        near = 3 + 2 * index
        routers.append(
            Routing(
                name=f"model.layers.{index}",
                tokens=128,
                flips=near + strange,
                near_tie=near,
                unexplained=strange,
                slots=index,
                unflipped_ratio=1.02 + index / 100,
                forced_ids=3e-3,
                forced_both=2.6e-3,
                load={"17": 61, "3": 58, "250": 40},
                imbalance=5.1,
                reference_imbalance=5.0,
                experts=256,
            )
        )
    if unknown:
        routers.append(
            Routing(name="model.layers.99", tokens=0, reason="the target does not hand out its choices")
        )
    return routers


def sample_self_test(*, missed: bool = False) -> SelfTest:
    """A matrix with every kind of outcome; `missed` adds a bug that was not found."""

    def bug(name: str, applies: str = "yes", **values: Any) -> BugResult:
        where = "model.layers.3" if applies != "no" else ""
        return BugResult(bug=name, where=where, applicability=applies, **values)

    found: dict[str, Any] = {"detected": True, "block_right": True, "dtype": "bf16"}
    matrix = [
        bug("rope_pairing", effect=212.0, by="ratio", **found),
        bug("mask_off_by_one", effect=41.0, by="worst_ratio", **found),
        bug("dropped_bias", applies="no", reason="no linear layer has a bias"),
        bug("norm_eps", applies="below_noise", effect=0.3, by="ratio", **{**found, "dtype": "fp32"}),
        bug("clamped_activations", applies="below_noise", effect=1.2, reason="no fp32 target"),
        bug("missing_block_scale", effect=900.0, by="reference_check", **{**found, "dtype": "fp8_block"}),
    ]
    if missed:
        wrong: dict[str, Any] = {"detected": False, "block_right": False, "dtype": "bf16"}
        matrix.append(bug("wrong_head_grouping", effect=17.0, **wrong))
        matrix.append(bug("stale_kv_slot", effect=17.0, **{**found, "block_right": False}, by="ratio"))
    return SelfTest(matrix=matrix, observer=True)


def sample_precision() -> Precision:
    def row(role: str, dtype: str, ratio: float, kl: float, *, good: bool) -> PrecisionRow:
        return PrecisionRow(
            role=role,
            dtype=dtype,
            scheme="per channel",
            rel_l2=ratio * 4e-3,
            ratio=ratio,
            kl=kl,
            top1=1 - kl,
            worst="model.layers.4",
            bytes=7_077_888 if dtype == "int8" else 14_155_776,
            tolerates=good,
        )

    return Precision(
        rows=[
            row("attention", "fp8_e4m3", 6.1, 4e-3, good=True),
            row("attention", "int8", 2.2, 2e-3, good=True),
            row("dense_mlp", "fp8_e4m3", 7.4, 5e-3, good=True),
            row("router", "fp8_e4m3", 88.0, 0.4, good=False),
        ],
        policy={"attention": "int8", "dense_mlp": "fp8_e4m3", "router": "bf16"},
        kl=6.2e-3,
    )


def sample_training(*, wrong: str = "") -> Training:
    names = ["model.embed_tokens", "model.layers.0", "model.norm", "lm_head"]
    return Training(
        layers=1,
        loss=3.218761,
        reference_loss=3.218344,
        noise_loss=3.218502,
        optimiser="AdamW, lr 1e-4",
        blocks=[
            TrainingBlock(
                name=name,
                gradient=metrics(4e-3, 9.0 if name == wrong else 1.1, 2.0),
                updated=metrics(5e-3, 1.2, 2.0),
                verdict="fail" if name == wrong else "pass",
                reason="ratio 9 is beyond 5 in the gradient" if name == wrong else "",
            )
            for name in names
        ],
    )


def sample_task() -> TaskMetric:
    return TaskMetric(
        name="choices", items=240, reference=0.71, target=0.705, difference=-0.005, low=-0.021, high=0.011
    )


def optional_parts() -> dict[str, Any]:
    """Every optional part of the facts but routing, which a dense model has not."""
    return {
        "decode": Logits(top1=0.981, top5=0.968, kl=3.3e-3, decisive=0, positions=8),
        "task": sample_task(),
        "self_test": sample_self_test(),
        "precision": sample_precision(),
        "training": sample_training(),
        "images": sample_images(),
    }


def sample_images(**changes: Any) -> ImageFeatures:
    """Two calls with pictures, both as near as rounding allows."""
    named = [
        ("image", "a picture", "112 x 168 pixels, 8 x 12 patches", 24),
        ("image_aspect", "other sizes", "224 x 56 pixels, 16 x 4 patches", 16),
    ]
    results = [
        ImageResult(
            name=name, purpose=why, shown=shown, tokens=tokens, state="pass", metrics=metrics(4e-3, 1.1, 0.2)
        )
        for name, why, shown, tokens in named
    ]
    return ImageFeatures(state="pass", results=results).model_copy(update=changes)


def sample_tower(count: int, **changes: Any) -> list[Block]:
    """Nodes of a vision tower and its projector, as they stand before those of the text."""
    names = [("model.visual.patch_embed", "vision")]
    names += [(f"model.visual.blocks.{index}", "vision") for index in range(count)]
    names += [("model.visual.merger", "projector")]
    return [
        Block(
            name=name, role=role, local=metrics(3e-3, 0.9, 0.1), propagated=metrics(4e-3, 1.0, 0.1),
            growth=1.0, verdict="pass",
        ).model_copy(update=changes)
        for name, role in names
    ]  # fmt: skip


def sample_numerics(
    target: str, *, layers: int = 30, bad: int | None = None, factor: float = 2.1, **facts: Any
) -> NumericsRecord:
    """The record of a target; `facts` replace or add parts."""
    scale = 4e-3 if target.endswith("bf16") else 3e-7
    blocks = sample_blocks(layers, bad=bad, scale=scale, seed=len(target), factor=factor)
    calls = 14 * len(blocks)
    made = NumericsFacts(
        fingerprint=fingerprint(target.split("@")[0]),
        reference="transformers 5.24.0 eager cpu fp32",
        noise="reference in bf16" if target.endswith("bf16") else "reference in fp32 against fp64",
        tokens=64,
        blocks=blocks,
        first_fault=_fault(bad) if bad is not None else None,
        logits=Logits(
            top1=0.984 if bad is None else 0.906,
            top5=0.97,
            kl=0.0031,
            decisive=0 if bad is None else 3,
            positions=64,
            prompts=sample_prompts(
                worst="" if bad is None else f"model.layers.{bad}", not_run=bad is not None
            ),
        ),
        says=Says(
            prompt="The capital of France is",
            reference=" Paris.",
            target=" Paris." if bad is None else " the city of",
            agree=bad is None,
        ),
        bytes_read=269_030_016,
        reference_check=CHECKED,
        manifest=Manifest(expected=calls, seen=calls),
    )
    return NumericsRecord.conclude(
        findings=_findings(target, bad),
        target=target,
        key="4e2a" * 8,
        facts=made.model_copy(update=facts),
        observations=NumericsObservations(
            seconds=11.3, peak_bytes=1_430_000_000, peak_memory=1_900_000_000, memory_bound=8 * 2**30
        ),
        sources={"": "measured in the worker against the reference"},
    )


def _fault(bad: int) -> FirstFault:
    return FirstFault(
        block=f"model.layers.{bad}",
        metric="gain_score",
        value=61.4,
        tolerance=12.0,
        fragment=f"model.layers.{bad}.mlp.act_fn",
        op="aten.silu.default",
        detail="Of 7 fragments mlp.act_fn is the innermost that is wrong by itself; of its 1 operator the "
        "first beyond noise is aten.silu.default.",
        repro=REPRO,
    )


def _findings(target: str, bad: int | None) -> list[Finding]:
    if bad is None:
        return []
    return [
        make_finding(
            any_code("NUM", "error"),
            Subject(kind="node", name=f"model.layers.{bad}"),
            f"model.layers.{bad} is off by itself: gain score 61.4 where 12 is allowed, relative L2 3.2 "
            "times the rounding noise.",
            evidence=[
                "gain +1.0e-02 over 64 tokens, standard error 1.6e-04",
                "every later node is off only by what it received",
                f"$ day0 compare {MODEL}@{REVISION} --target {target} --node model.layers.{bad}",
            ],
            remedy="Run this node's fragments one by one; report the first wrong operator to its owner.",
        )
    ]

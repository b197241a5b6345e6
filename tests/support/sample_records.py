"""Inventory and coverage records as a run on SmolLM2-135M might leave them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from day0.adapters.base.operator_capture import Kernel
from day0.adapters.base.values import Fingerprint, Size
from day0.adapters.base.workaround import Chosen
from day0.tasks.catalogue import CATALOGUE
from day0.tasks.coverage.record import (
    Alternative,
    CoverageFacts,
    CoverageObservations,
    CoverageRecord,
    CoveredOp,
    Gap,
)
from day0.tasks.coverage.record_kinds import KindCompile, KindShapes
from day0.tasks.finding import Subject, make_finding
from day0.tasks.inventory.record import (
    ActiveParams,
    Architecture,
    Identity,
    InventoryFacts,
    InventoryRecord,
    Layer,
    Quantization,
    RoleSize,
    Shard,
    TiedEmbeddings,
    Totals,
)

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
REVISION = "12fd25f77366fa6b3b4b768ec3050bf629380bac"
BAD_LAYER = 17
EAGER, ORT = "eager@cpu/bf16", "onnxruntime@cpu/fp32"
HIDDEN, INTERMEDIATE, KV, VOCABULARY = 576, 1536, 192, 49152
LAYER_PARAMS = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV + 3 * HIDDEN * INTERMEDIATE + 2 * HIDDEN


def any_code(prefix: str, severity: str, *, undecided: str | None = None) -> str:
    """A code of that stage and weight, whatever it means."""
    return next(
        code
        for code, entry in CATALOGUE.items()
        if code.startswith(prefix) and entry.severity == severity and entry.undecided == undecided
    )


def fingerprint(stack: str) -> Fingerprint:
    return Fingerprint(
        family=f"{stack} x86_64 avx512",
        exact={"torch": "2.13.0", "onnxruntime": "1.32.0", "cpu": "Xeon", "driver": "none"},
    )


def _layers(layers: int, per_layer: int) -> list[Layer]:
    return [
        Layer(
            name=f"model.layers.{index}",
            index=index,
            kind="full",
            feed_forward="dense",
            params=per_layer,
            bytes=2 * per_layer,
            kv_bytes_per_token=768,
        )
        for index in range(layers)
    ]


def _architecture(layers: int) -> Architecture:
    return Architecture(
        architecture="LlamaForCausalLM",
        model_type="llama",
        dtype="bf16",
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        layers=layers,
        heads=9,
        kv_heads=3,
        head_dim=64,
        vocab_size=VOCABULARY,
        max_positions=8192,
        position="rope",
        activation="silu",
        norm_eps=1e-5,
    )


def sample_inventory(layers: int = 30, model: str = MODEL) -> InventoryRecord:
    per_layer = LAYER_PARAMS
    embedding, norm = VOCABULARY * HIDDEN, HIDDEN
    params = embedding + norm + layers * per_layer
    roles = {
        "embedding": embedding,
        "attention": layers * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV),
        "dense_mlp": layers * 3 * HIDDEN * INTERMEDIATE,
        "norm": layers * 2 * HIDDEN + norm,
    }
    facts = InventoryFacts(
        identity=Identity(
            model=model,
            revision=REVISION,
            config_digest="c0ffee00" * 4,
            structure_digest="5ca1ab1e" * 4,
            weights_digest="feedbeef" * 4,
        ),
        format="safetensors",
        totals=Totals(
            tensors=9 * layers + 2,
            shards=5,
            data_bytes=2 * params,
            logical_params=params,
            aux_elements=0,
            mtp_params=0,
            vision_params=0,
            routed_expert_params=0,
            main_params=params,
        ),
        active_params=ActiveParams(
            with_embedding_and_head=params,
            without_embedding=params - embedding,
            without_embedding_and_head=params - embedding,
        ),
        kv_bytes_per_token=layers * 768,
        kv_bytes_per_token_growing=layers * 768,
        state_bytes_per_sequence=0,
        layers=_layers(layers, per_layer),
        roles={
            role: RoleSize(
                params=count, bytes=2 * count, dtypes={"bf16": Size(elements=count, bytes=2 * count)}
            )
            for role, count in roles.items()
        },
        quantization=Quantization(),
        tied_embeddings=TiedEmbeddings(config=True, tensors=True),
        architecture=_architecture(layers),
        config={"model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": layers},
        shards=[
            Shard(path=f"model-0000{n}-of-00005.safetensors", size=53_820_000, tensors=54, dtypes=["bf16"])
            for n in range(1, 6)
        ],
        header_bytes_total=31_744,
    )
    return InventoryRecord.conclude(
        findings=[
            make_finding(
                any_code("INV", "info"),
                Subject(kind="file", name="model.safetensors.index.json"),
                "The index states 269,060,552 bytes in all, the headers add up to 269,030,016.",
                evidence=["model.safetensors.index.json#/metadata/total_size"],
            )
        ],
        facts=facts,
        key="1b7c" * 8,
        sources={
            "": "headers of model-00001-of-00005.safetensors to model-00005-of-00005.safetensors",
            "/config": "config.json",
            "/architecture": "config.json",
            "/kv_bytes_per_token": "computed: layers x 2 x kv_heads x head_dim x 2 bytes, from config.json",
            "/active_params": "computed: parameters less unchosen experts, from headers and config.json",
        },
    )


def _judged() -> dict[str, Any]:
    """What stands beside operators and gaps: kernels, kinds, sizes, alternatives, and what was chosen."""
    eager = {"attn": "eager"}
    kind: dict[str, Any] = {"kind": "k1", "node": "model.layers.0", "nodes": 30}
    return {
        "kernels": [Kernel(name="hub:kernels-community/rmsnorm", kind="hub", architectures=["cuda"])],
        "kinds": [
            KindCompile(
                **kind, outcome="ran", deviation=1e-7, operators={"aten.mm.default": 9}, kernels={"Gemm": 7}
            ),
            KindCompile(**kind, phase="decode", outcome="shape", op="aten.cat.default", detail="refused"),
        ],
        "dynamic": [
            KindShapes(kind="k1", node="model.layers.0", answer="static", graphs=3, recompiled=["length 7"])
        ],
        "alternatives": [
            Alternative(options={}, operators=51, rebuilt=["aten.scaled_dot_product_attention.default"]),
            Alternative(options=eager, operators=49, chosen=True, checked="replayed"),
            Alternative(options={"attn": "flex_attention"}, reason="not captured"),
        ],
        "chosen": [Chosen(id="attn=eager", options=eager, checked="replayed")],
    }


def _gap(place: int, op: CoveredOp) -> Gap:
    rebuilt = op.status == "decomposed"
    return Gap(
        id=f"gap{place}",
        op=op.op,
        dtypes=op.dtypes,
        status=op.status,
        impact=op.impact,
        workaround="attn=eager" if rebuilt else "",
        checked="one node of each of its 5 kinds ran on the target" if rebuilt else "",
        launches=12 if rebuilt else 0,
        evidence="not probed" if op.status == "unknown" else "shape: refused",
        repro="import torch\n",
        letter="To: the owner\n",
    )


def sample_coverage(target: str, *, gaps: bool) -> CoverageRecord:
    names = [
        ("aten.mm.default", 0.83, 211),
        ("aten.scaled_dot_product_attention.default", 0.09, 30),
        ("aten.mul.Tensor", 0.03, 364),
        ("aten.add.Tensor", 0.02, 151),
        ("aten.silu.default", 0.01, 30),
        ("aten.embedding.default", 0.005, 1),
        ("aten.pow.Tensor_Scalar", 0.004, 61),
        ("aten.mean.dim", 0.004, 61),
        ("aten.rsqrt.default", 0.002, 61),
        ("aten.cat.default", 0.002, 120),
        ("aten.index.Tensor", 0.001, 2),
        ("aten.cos.default", 0.001, 1),
        ("aten.sin.default", 0.0005, 1),
    ]
    troubled = {"aten.index.Tensor": "unknown", "aten.scaled_dot_product_attention.default": "decomposed"}
    ops = [
        CoveredOp(
            op=op,
            dtypes=["bf16"] if target == EAGER else ["fp32"],
            status=troubled.get(op, "native") if gaps else "native",
            grade="" if gaps and troubled.get(op) == "unknown" else "measured",
            evidence="probe 7f3a, 12 signatures",
            impact=impact,
            calls=calls,
            phases=["prefill", "decode"],
            module="model.layers.0.self_attn",
            signatures=3,
        )
        for op, impact, calls in names
    ]
    findings = []
    if gaps:
        findings.append(
            make_finding(
                any_code("COV", "warning", undecided="unverified"),
                Subject(kind="operator", name="aten.index.Tensor"),
                "aten.index.Tensor (fp32) was not tried: the probe budget of 60 s was used up.",
                evidence=[f"$ day0 probe {MODEL} --target {ORT}"],
            )
        )
    return CoverageRecord.conclude(
        findings=findings,
        target=target,
        key="2c0e" * 8,
        facts=CoverageFacts(
            fingerprint=fingerprint(target.split("@")[0]),
            config_digest="c0ffee00" * 4,
            overloads=len(ops),
            signatures=41,
            statuses=dict(Counter(op.status for op in ops)),
            ops=ops,
            gaps=[_gap(place, op) for place, op in enumerate(ops) if op.status != "native"],
            new_since_registry=["aten.index.Tensor(fp32)"] if gaps else [],
            **(_judged() if gaps else {}),
        ),
        observations=CoverageObservations(capture_seconds=1.4, probe_seconds=21.0, probed=12),
        sources={"": "captured on meta from config.json; statuses from the registry"},
    )

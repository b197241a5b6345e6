"""Inventories of models known only by their published numbers: tensor patterns made from dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from day0.adapters.base.dtypes import num_bytes
from day0.tasks.inventory.record import (
    ActiveParams,
    Architecture,
    Identity,
    InventoryFacts,
    InventoryRecord,
    Layer,
    Quantization,
    TensorPattern,
    TiedEmbeddings,
    Totals,
)


@dataclass(frozen=True)
class Model:
    """Dimensions of a decoder, as its config has them; `latent` in place of KV heads makes it MLA."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    dense_width: int = 0
    dense_layers: int = 0
    experts: int = 0
    top_k: int = 0
    expert_width: int = 0
    shared: int = 0
    latent: int = 0
    query_latent: int = 0
    rope_dim: int = 0
    scheme: str = "none"
    group: int | Sequence[int] = 0
    max_positions: int = 131072
    window: int = 0
    tied: bool = False


def make_inventory(model: Model) -> InventoryRecord:
    """The record that the inventory stage would give for a checkpoint of these dimensions."""
    patterns = [*_attention(model), *_feed_forward(model), *_ends(model)]
    data = sum(pattern.bytes for pattern in patterns)
    layers = [_layer(model, index) for index in range(model.layers)]
    windowed = model.window and sum(layer.kv_bytes_per_token for layer in layers if layer.window)
    total = sum(layer.kv_bytes_per_token for layer in layers)
    params = sum(pattern.params for pattern in patterns)
    facts = InventoryFacts(
        identity=Identity(
            model=model.name, revision="0" * 40, config_digest="c", structure_digest="s", weights_digest="w"
        ),
        format="safetensors",
        totals=Totals(
            tensors=sum(pattern.tensors for pattern in patterns),
            shards=1,
            data_bytes=data,
            logical_params=params,
            aux_elements=0,
            mtp_params=0,
            vision_params=0,
            routed_expert_params=sum(pattern.params for pattern in patterns if pattern.role == "expert"),
            main_params=params,
        ),
        active_params=ActiveParams(
            with_embedding_and_head=0, without_embedding=0, without_embedding_and_head=0
        ),
        kv_bytes_per_token=total,
        kv_bytes_per_token_growing=total - windowed,
        kv_window_bytes={model.window: windowed} if windowed else {},
        state_bytes_per_sequence=0,
        layers=layers,
        roles={},
        quantization=Quantization(
            scheme=model.scheme, bits=8 if "fp8" in model.scheme else 0, group=model.group
        ),
        tied_embeddings=TiedEmbeddings(config=model.tied, tensors=model.tied),
        architecture=Architecture(
            dtype="bf16",
            hidden_size=model.hidden,
            intermediate_size=model.dense_width,
            moe_intermediate_size=model.expert_width,
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            vocab_size=model.vocabulary,
            max_positions=model.max_positions,
            experts=model.experts,
            top_k=model.top_k,
        ),
        config={},
        shards=(),
        patterns=patterns,
        header_bytes_total=0,
    )
    return InventoryRecord.conclude(findings=(), facts=facts)


def _layer(model: Model, index: int) -> Layer:
    width = model.latent + model.rope_dim if model.latent else 2 * model.kv_heads * model.head_dim
    window = model.window if model.window and index % 2 == 0 else 0
    return Layer(
        name=f"model.layers.{index}",
        index=index,
        kind="mla" if model.latent else "sliding" if window else "full",
        feed_forward="moe" if model.experts and index >= model.dense_layers else "dense",
        params=0,
        bytes=0,
        kv_bytes_per_token=2 * width,
        window=window,
    )


def make_pattern(
    name: str,
    role: str,
    shape: Sequence[int],
    dtype: str = "bf16",
    layers: str = "",
    copies: int = 1,
) -> TensorPattern:
    """`copies` tensors of one name pattern."""
    elements = copies
    for dim in shape:
        elements *= dim
    return TensorPattern(
        pattern=name, layers=layers, others=(), role=role, owner=role, part="text", dtype=dtype,
        shape=tuple(shape), tensors=copies, params=elements, bytes=num_bytes(dtype, elements),
    )  # fmt: skip


def _attention(model: Model) -> list[TensorPattern]:
    low = "fp8_e4m3" if "fp8" in model.scheme else "bf16"
    layers = f"0-{model.layers - 1}"
    width = model.heads * model.head_dim
    if model.latent:
        shapes = {
            "q_a_proj": (model.query_latent, model.hidden),
            "q_b_proj": (width, model.query_latent),
            "kv_a_proj_with_mqa": (model.latent + model.rope_dim, model.hidden),
            "kv_b_proj": (model.heads * 256, model.latent),
            "o_proj": (model.hidden, model.heads * 128),
        }
    else:
        kv = model.kv_heads * model.head_dim
        shapes = {
            "q_proj": (width, model.hidden),
            "k_proj": (kv, model.hidden),
            "v_proj": (kv, model.hidden),
            "o_proj": (model.hidden, width),
        }
    return [
        make_pattern(
            f"model.layers.{{l}}.self_attn.{name}.weight", "attention", shape, low, layers, model.layers
        )
        for name, shape in shapes.items()
    ]


def _feed_forward(model: Model) -> list[TensorPattern]:
    low = "fp8_e4m3" if "fp8" in model.scheme else "bf16"
    dense = model.dense_layers if model.experts else model.layers
    kinds = []
    if dense:
        kinds.append(("mlp", "dense_mlp", model.dense_width, f"0-{dense - 1}", dense, low))
    if model.experts:
        sparse = model.layers - dense
        span = f"{dense}-{model.layers - 1}"
        expert = "fp4_e2m1" if model.scheme == "mxfp4" else low
        kinds.append(("mlp.experts.{e}", "expert", model.expert_width, span, sparse * model.experts, expert))
        if model.shared:
            width = model.expert_width * model.shared
            kinds.append(("mlp.shared_experts", "shared_expert", width, span, sparse, low))
    return [
        make_pattern(f"model.layers.{{l}}.{place}.{name}.weight", role, shape, dtype, span, copies)
        for place, role, width, span, copies, dtype in kinds
        for name, shape in (
            ("gate_proj", (width, model.hidden)),
            ("up_proj", (width, model.hidden)),
            ("down_proj", (model.hidden, width)),
        )
    ]


def _ends(model: Model) -> list[TensorPattern]:
    shape = (model.vocabulary, model.hidden)
    ends = [make_pattern("model.embed_tokens.weight", "embedding", shape)]
    return ends if model.tied else [*ends, make_pattern("lm_head.weight", "head", shape)]

"""Where each fact of the inventory came from."""

from __future__ import annotations

from collections.abc import Mapping

from .seen import Seen

_COUNTS = {
    "headers": "headers",
    "implied": "implied by the config, see /implied; nothing is stored",
    "none": "nothing, neither stored nor implied tensors are known",
}


def fact_sources(seen: Seen, kinds_source: str) -> Mapping[str, str]:
    """JSON pointer into the facts -> where the value came from."""
    pointer = seen.facts.pointer
    formula = next((state.formula for state in seen.states if state.formula), "nothing stated")
    kinds = (
        f"config.json#{pointer}/{kinds_source}" if kinds_source else "computed:no kind is stated, all full"
    )
    declared = seen.declared.pointer
    counts = _COUNTS[seen.basis]
    return {
        "/architecture": "computed:0 or empty, config.json does not say",
        **seen.facts.sources,
        "/identity": "computed:digests of config.json, headers and file identities",
        "/basis": "computed:the source's listing",
        "/totals": f"computed:{counts}",
        "/active_params": f"computed:{counts} x config.json experts per token / experts",
        "/kv_bytes_per_token": f"computed:sum over layers, e.g. {formula}",
        "/kv_bytes_per_token_growing": "computed:sum over layers without a window",
        "/kv_window_bytes": "computed:sum over layers with that window",
        "/state_bytes_per_sequence": "computed:sum over layers",
        "/layers": f"computed:{counts}; kind {kinds}; state {formula}",
        "/roles": f"computed:{counts}",
        "/quantization": f"config.json#{declared}" if declared else "computed:headers",
        "/tied_embeddings/config": f"config.json#{pointer}/tie_word_embeddings",
        "/tied_embeddings/tensors": "computed:headers",
        "/config": "config.json#",
        "/format": "computed:the source's listing",
        "/unknown_tensors": "computed:headers",
        "/shards": "computed:headers and the source's listing",
        "/patterns": "computed:headers",
        "/header_bytes_total": "computed:headers",
    }

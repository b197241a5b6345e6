"""What a node is, from its place in the model, its parameters and what it did in one forward."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from ..base.skeleton import StateSize
from ..base.values import digest
from .trace import TRACE_TOKENS, TracedNode, cache_tensors

_LAYER_WORDS = {
    "full_attention": "full", "sliding_attention": "sliding", "hybrid_sliding": "sliding",
    "reference_sliding_attention": "sliding", "chunked_attention": "chunked",
    "linear_attention": "linear", "mamba": "state_space", "hybrid": "state_space", "conv": "state_space",
    "compressed_sparse_attention": "sparse_indexed", "heavily_compressed_attention": "sparse_indexed",
    "indexed_attention": "sparse_indexed", "attention": "full",
}  # fmt: skip
_VISION_WORDS = ("visual", "vision", "image", "vit")
_PROJECTOR_WORDS = ("projector", "connector", "merger")
_DENSE_WORDS = ("mlp", "feed_forward", "ffn", "ff", "fc1", "feedforward")


def layer_list(model: Any) -> list[str]:
    """Paths of the `ModuleList`s that may hold the decoder layers, most likely first.

    Lists beside the input embedding come before others, larger ones before smaller ones.
    """
    beside = _embedding_path(model).rpartition(".")[0]
    sizes: list[tuple[bool, int, int, str]] = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module):
            elements = sum(parameter.numel() for parameter in module.parameters())
            apart = not (name == beside or name.startswith(f"{beside}.") or not beside)
            sizes.append((apart, -elements, name.count("."), name))
    return [name for *_, name in sorted(sizes)]


def block_lists(model: Any) -> list[str]:
    """Paths of all `ModuleList`s of blocks that lie in no block themselves, those inside another list too.

    A block is made of modules; a list of single layers is a part of whatever holds it.
    """
    found: list[str] = []
    inside = ""
    for name, module in model.named_modules():  # each module after those that hold it
        if inside and name.startswith(f"{inside}."):
            # An element of the list counts as a list where it is one, and as a block else.
            holder = name.rpartition(".")[0]
            if not (holder in found and isinstance(module, torch.nn.ModuleList)):
                continue
        if isinstance(module, torch.nn.ModuleList) and any(_is_block(part) for part in module):
            found.append(name)
            inside = inside if inside and name.startswith(f"{inside}.") else name
    return found


def _is_block(module: Any) -> bool:
    return any(True for _ in module.children())


def containers_of(path: str) -> set[str]:
    """The list at `path` and everything it lies in; the forwards of these are glue between nodes."""
    parts = path.split(".")
    return {".".join(parts[:count]) for count in range(len(parts) + 1)}


def _embedding_path(model: Any) -> str:
    try:
        embedding = model.get_input_embeddings()
    except (NotImplementedError, AttributeError):  # transformers' own answer for a class without one
        return ""
    return _path_of(model, embedding)


def _path_of(model: Any, wanted: Any) -> str:
    return next((name for name, module in model.named_modules() if module is wanted), "")


def role_of(model: Any, node: TracedNode, layers: str) -> str:
    """The role of a called node.

    Args:
        model: on the meta device.
        node: as traced.
        layers: path of the list that holds the decoder layers.
    """
    module = model.get_submodule(node.name)
    if node.name.rpartition(".")[0] == layers:
        return "layer"
    if module is model.get_input_embeddings():
        return "embedding"
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if module is output:
        return "head"
    parameters = list(module.parameters())
    if not parameters or (isinstance(module, torch.nn.Embedding) and "" not in node.reads):
        return "position"
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    if node.same_shape and all(parameter.dim() <= 1 for parameter in parameters):
        return "norm"
    return uncalled_role(node.name)


def uncalled_role(name: str) -> str:
    """The role of a node that text alone does not call, from the words in its path."""
    words = name.lower()
    if any(word in words for word in _PROJECTOR_WORDS):
        return "projector"
    return "vision" if any(word in words for word in _VISION_WORDS) else "unknown"


def kind_of(module: Any, node: TracedNode | None, layer_kind: str) -> str:
    """Digest of the node's graph with its weights lifted out.

    Names, shapes and dtypes of the weights, the wiring of the operators, and the attention word: layers that
    keep another kind of cache are called alike in a short prefill and differ afterwards.
    """
    weights = [(name, list(value.shape), str(value.dtype)) for name, value in module.state_dict().items()]
    return digest({"weights": weights, "graph": node.graph if node else "", "layer_kind": layer_kind})[:16]


def layer_kind(config: Any, module: Any, node: TracedNode) -> str:
    """The attention word of a decoder layer: from `layer_types`, else from what it keeps and the config."""
    text = config.get_text_config()
    types = getattr(text, "layer_types", None)
    index = int(node.name.rpartition(".")[2]) if node.name.rpartition(".")[2].isdecimal() else -1
    declared = types[index] if isinstance(types, (list, tuple)) and 0 <= index < len(types) else ""
    word = _LAYER_WORDS.get(declared, "")
    state = state_size(config, node)
    if word in ("", "full") and state.kind != "none":
        if getattr(text, "index_topk", None):
            return "sparse_indexed"
        if state.kind == "latent":
            return "mla"
    if word == "linear" and any(name.rpartition(".")[2] == "D" for name, _ in module.named_parameters()):
        return "state_space"  # the skip term D of a state space model; linear attention has none
    if not word:
        found = {"kv": "sliding" if state.window else "full", "recurrent": "state_space"}
        word = found.get(state.kind, "state_space" if state.kind == "convolution" else "")
    return word


def feed_forward(module: Any) -> str:
    """`moe` where the layer holds experts, `dense` where it holds one feed-forward, else empty."""
    names = [name.split(".") for name, _ in module.named_modules() if name]
    if any("experts" in parts for parts in names):
        return "moe"
    return "dense" if any(parts[0] in _DENSE_WORDS for parts in names) else ""


def experts_path(module: Any) -> str:
    """Path inside the module of its stacked experts, whose call takes routed tokens; empty: there are none.

    These are the classes under transformers' `use_experts_implementation`: all parameters are stacks of
    `num_experts`, and the call is `(hidden_states, top_k_index, top_k_weights)`, under whatever names. A
    module that holds two of them (text and vision experts) has none that could stand for the node.
    """
    found = [name for name, part in module.named_modules() if name and _are_experts(part)]
    return found[0] if len(found) == 1 else ""


def _are_experts(module: Any) -> bool:
    count = getattr(module, "num_experts", None)
    parameters = list(module.parameters())
    if not hasattr(module, "is_transposed") or not isinstance(count, int) or not parameters:
        return False
    taken = list(inspect.signature(type(module).forward).parameters)[1:]
    stacked = all(parameter.dim() > 1 and parameter.shape[0] == count for parameter in parameters)
    return stacked and len(taken) == 3 and taken[0] == "hidden_states"


def state_size(config: Any, node: TracedNode) -> StateSize:
    """What the node keeps between calls, read off the cache that one traced prefill left."""
    if not node.cached:
        return StateSize()
    per_token = per_sequence = window = 0
    kinds: set[str] = set()
    latent = bool(getattr(config.get_text_config(), "kv_lora_rank", None))
    for _, layer in node.cached:
        window = max(window, int(getattr(layer, "sliding_window", 0) or 0))
        for name, tensor in cache_tensors(layer).items():
            elements = tensor.numel()
            fixed = name.startswith(("conv", "recurrent"))
            if name in ("keys", "values") or (not fixed and tensor.shape[-2] == TRACE_TOKENS):
                per_token += elements // max(1, tensor.shape[-2])  # a window may already have dropped some
                kinds.add("latent" if latent and tensor.dim() == 4 and tensor.shape[1] == 1 else "kv")
            else:
                per_sequence += elements
                kinds.add("convolution" if name.startswith("conv") else "recurrent")
    order = ("latent", "kv", "recurrent", "convolution")
    kind = next((word for word in order if word in kinds), "none")
    return StateSize(kind=kind, per_token=per_token, per_sequence=per_sequence, window=window)


def uncalled(model: Any, called: Mapping[str, TracedNode]) -> dict[str, list[str]]:
    """Path -> full names of the parameters for which it stands, over all that no called node holds.

    The paths are as few as can be; lists are taken apart. One that is also a container stands for the
    parameters which lie directly in it, and the empty one for those that lie in the model itself.
    """
    covered = tuple(f"{name}." for name in called)
    paths: dict[str, list[str]] = {}
    for name in model.state_dict():
        if not name.startswith(covered):
            paths.setdefault(_outermost(model, name, covered), []).append(name)
    return paths


def _outermost(model: Any, parameter: str, covered: tuple[str, ...]) -> str:
    """The widest module around the parameter that holds no called node and no list of modules."""
    parts = parameter.split(".")
    for count in range(1, len(parts)):
        path = ".".join(parts[:count])
        module = model.get_submodule(path)
        inside = any(prefix.startswith(f"{path}.") for prefix in covered)
        lists = any(isinstance(part, torch.nn.ModuleList) for part in module.children())
        if not inside and not lists and not isinstance(module, torch.nn.ModuleList):
            return path
    return ".".join(parts[:-1])

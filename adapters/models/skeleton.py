"""The skeleton of a release: config and tensor names in, nodes with roles, kinds and weight recipes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ..base.errors import SkeletonError, words_of
from ..base.release import Release
from ..base.skeleton import Node, Skeleton, path_inside
from ..base.values import Anomaly
from . import nodes
from .architecture import BuiltModel, build_meta_model, declared_dtype
from .mapping import WeightMap, map_weights
from .trace import TracedNode, trace

STRUCTURE_DTYPE = "bf16"
"""Structure is traced in bf16 whatever the release declares: torch's grouped matrix product, through which
experts run, has a meta kernel for no other dtype, and no shape or name depends on it."""


def build_skeleton(release: Release) -> Skeleton:
    """Builds the skeleton; reads no weights and runs no code of the release.

    Raises:
        SkeletonError: E401 unknown model type, E402 it needs repository code, E403 the config does not build,
            E404 the model built from it does not run on the meta device.
    """
    built = build_meta_model(release.config, STRUCTURE_DTYPE)
    layers, traced = _trace(built)
    weights = map_weights(built.model, release.checkpoint.tensors, release.config)
    anomalies: list[Anomaly] = [
        Anomaly(code="weights_not_mapped", subject=name, message=f"{name}: {reason}", evidence="config.json")
        for name, reason in sorted(weights.reasons.items())
    ]
    return Skeleton(
        architecture=built.architecture,
        model_type=str(built.model.config.get_text_config().model_type),
        config=built.config,
        nodes=_nodes(built, layers, traced, weights),
        unused=weights.unused,
        anomalies=anomalies,
        dtype=declared_dtype(release.config),
        builder={name: version(name) for name in ("torch", "transformers")},
    )


def _trace(built: BuiltModel) -> tuple[str, dict[str, TracedNode]]:
    """The list that holds the decoder layers and the called nodes."""
    failure = "it has no list of layers"
    for path in nodes.layer_list(built.model):
        try:
            traced = trace(built.model, nodes.containers_of(path))
        except Exception as error:  # third-party model code on arbitrary configs
            failure = words_of(error, 400)
            break
        if any(node.name.rpartition(".")[0] == path for node in traced):
            return path, {node.name: node for node in traced}
        failure = f"a forward calls no element of {path}"
    pair = getattr(built.model.config, "is_encoder_decoder", False)
    kind = " (an encoder-decoder, which token ids alone do not run)" if pair else ""
    raise SkeletonError(
        f"{built.architecture}{kind} does not run on the meta device: {failure}",
        code="E404",
        remedy="Its operators and nodes stay unknown; inventory from headers is not affected.",
    )


def _nodes(built: BuiltModel, layers: str, traced: dict[str, TracedNode], weights: WeightMap) -> list[Node]:
    found = nodes_of(built.model, traced, weights, lambda node: nodes.role_of(built.model, node, layers))
    return [node for node in found if node.name]


def nodes_of(
    model: Any,
    traced: Mapping[str, TracedNode],
    weights: WeightMap,
    role_of: Callable[[TracedNode], str],
) -> list[Node]:
    """The called nodes in order, then those that hold what no called node holds.

    Args:
        model: on the meta device.
        traced: what is called, by name.
        weights: of the whole model.
        role_of: role of a called node.
    """
    called = [_called(model, role_of(node), node, weights) for node in traced.values()]
    return called + [
        _uncalled(model, path, names, weights) for path, names in nodes.uncalled(model, traced).items()
    ]


def _called(model: Any, role: str, node: TracedNode, weights: WeightMap) -> Node:
    module = model.get_submodule(node.name)
    word = nodes.layer_kind(model.config, module, node) if role == "layer" else ""
    return Node(
        name=node.name,
        role=role,
        kind=nodes.kind_of(module, node, word),
        layer_kind=word,
        feed_forward=nodes.feed_forward(module) if role in ("layer", "vision") else "",
        reads=[name for name in node.reads if name],
        state=nodes.state_size(model.config, node),
        experts=nodes.experts_path(module),
        **_weights(node.name, list(module.state_dict()), weights),
    )


def _uncalled(model: Any, path: str, names: Sequence[str], weights: WeightMap) -> Node:
    inside = [name.removeprefix(path_inside(path, "")) for name in names]
    return Node(
        name=path,
        role=nodes.uncalled_role(path),
        kind=nodes.kind_of(model.get_submodule(path), None, ""),
        called=False,
        **_weights(path, inside, weights),
    )


def _weights(path: str, inside: Sequence[str], weights: WeightMap) -> dict[str, Any]:
    full = {name: path_inside(path, name) for name in inside}
    return {
        "weights": {name: weights.recipes[key] for name, key in full.items() if key in weights.recipes},
        "missing": [name for name, key in full.items() if key not in weights.recipes],
        "tied": {name: weights.tied[key] for name, key in full.items() if key in weights.tied},
    }

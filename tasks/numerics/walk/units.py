"""Finished nodes in the run store, so that a killed comparison goes on after the last of them.

A unit's key covers all nodes before it, since a node's input depends on them; one changed tensor changes the
keys from its node on. Units of the reference know nothing of the target and serve every target of the same
precision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from day0.adapters.base.checkpoint import Checkpoint
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0.adapters.base.values import digest
from day0_worker import blobs, frames

_JSON = "unit.json"


@dataclass(frozen=True)
class Unit:
    """What is kept of one node.

    Attributes:
        values: name -> output of the node.
        facts: what was found out about it, as JSON.
    """

    values: Mapping[str, Call]
    facts: Mapping[str, Any]


def node_identity(node: Node, checkpoint: Checkpoint) -> str:
    """Changes whenever the node's graph, the recipe of its weights or the bytes of a tensor change."""
    weights = {
        name: [recipe.expression, [checkpoint.identity(tensor) for tensor in recipe.tensors]]
        for name, recipe in node.weights.items()
    }
    return digest({"node": node.name, "kind": node.kind, "weights": weights, "missing": list(node.missing)})


def chain(previous: str, identity: str) -> str:
    """The key of a node whose predecessor has the key `previous`."""
    return digest([previous, identity])


def load_unit(store: RunStore, key: str) -> Unit | None:
    """The stored unit; None where there is none or where its file is damaged."""
    name = _name(key)
    if not store.exists(name):
        return None
    try:
        return unpacked(store.read(name))
    except DamagedUnit:
        store.remove(name)
        return None


def save_unit(store: RunStore, key: str, unit: Unit) -> None:
    """Stores a unit, whole or not at all."""
    store.write(_name(key), packed(unit))


class DamagedUnit(Exception):
    """Bytes that no unit has."""


def unpacked(data: bytes) -> Unit:
    """The unit in these bytes.

    Raises:
        DamagedUnit: there is none.
    """
    try:
        tensors = dict(blobs.load(bytearray(data)))
        content = json.loads(bytes(tensors.pop(_JSON).tolist()))
        values = {name: _call(name, tree, tensors) for name, tree in content["trees"].items()}
        return Unit(values, content["facts"])
    except (frames.FrameError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedUnit(f"{type(error).__name__}: {error}") from error


def packed(unit: Unit) -> bytes:
    """A unit as bytes."""
    tensors = {
        f"{name}/{key}": tensor for name, call in unit.values.items() for key, tensor in call.tensors.items()
    }
    content = {"trees": {name: call.tree for name, call in unit.values.items()}, "facts": dict(unit.facts)}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    tensors[_JSON] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return b"".join(blobs.dump(tensors))


def _call(name: str, tree: Any, tensors: Mapping[str, torch.Tensor]) -> Call:
    prefix = f"{name}/"
    return Call(tree, {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)})


def _name(key: str) -> str:
    return f"units/{key[:2]}/{key}"

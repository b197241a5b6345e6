"""What a run keeps of each node's output in a few hundred bytes, so that a later one can tell a change.

A signature is the norm of each token and a projection of the whole output onto 64 directions drawn by a
fixed seed. For entries of the directions that are plus or minus one at random, the mean square of the
projections of a difference is the squared L2 norm of that difference, within a relative standard deviation
of sqrt(2 / 64) (Johnson and Lindenstrauss; Achlioptas 2003): two signatures give the distance of two outputs
that nobody kept. Unlike minimum, maximum, mean and norm they see rotations, permutations and exchanged signs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Call
from day0_worker import blobs, frames

from .values import float_tensors

KEY = "signature"
"""Its name among the values of a unit."""
TOKENS = "tokens"
"""Name of the token ids in the file of a run's signatures."""
DIRECTIONS = 64
_SEED = 20261130
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Signature:
    """Of one output.

    Attributes:
        projection: [64] fp32.
        norms: [tokens] fp32, of its first tensor.
    """

    projection: Tensor
    norms: Tensor


def signature_of(output: Call) -> Signature | None:
    """The signature of all floating tensors of an output; None where there is none."""
    tensors = float_tensors(output)
    if not tensors:
        return None
    parts = [_projected(tensor, number) for number, tensor in enumerate(tensors)]
    first = tensors[0].reshape(-1, tensors[0].shape[-1] if tensors[0].dim() else 1)
    return Signature(torch.stack(parts).sum(0).float(), first.double().norm(dim=1).float())


def signature_call(signature: Signature) -> Call:
    """A signature in the form in which units hold values."""
    return Call([], {"projection": signature.projection, "norms": signature.norms})


def keep_signature(found: dict[str, Signature], node: str, values: Mapping[str, Call]) -> None:
    """Notes the signature among a unit's values, where the node has none yet."""
    call = values.get(KEY)
    if call is not None and node not in found:
        found[node] = Signature(call.tensors["projection"], call.tensors["norms"])


def moved(before: Signature, after: Signature) -> float:
    """How far one output is from another, as an estimate of relative L2; infinite for other shapes."""
    if before.norms.shape != after.norms.shape:
        return math.inf
    scale = float(before.norms.double().norm())
    apart = float((after.projection.double() - before.projection.double()).square().mean().sqrt())
    return apart / scale if scale > 0 else (math.inf if apart > 0 else 0.0)


def save_signatures(store: RunStore, signatures: Mapping[str, Signature], tokens: Sequence[int] = ()) -> str:
    """Keeps the signatures of a run, by node; returns the name of their file, which follows from them.

    Args:
        store: of the run.
        signatures: by node.
        tokens: ids that the nodes saw, less than 2^24, so that fp32 holds them.
    """
    tensors = {f"{node}/{part}": getattr(signature, part) for node, signature in signatures.items()
               for part in ("projection", "norms")}  # fmt: skip
    if tokens:
        tensors[TOKENS] = torch.tensor(tokens, dtype=torch.float32)
    data = b"".join(blobs.dump(tensors))
    name = f"signatures/{hashlib.sha256(data).hexdigest()[:32]}"
    store.write(name, data)
    return name


def load_signatures(store: RunStore, name: str) -> Mapping[str, Signature]:
    """The signatures of a run, by node; empty where the file is gone or damaged."""
    if not store.exists(name):
        return {}
    try:
        tensors = blobs.load(bytearray(store.read(name)))
        nodes = [key.removesuffix("/projection") for key in tensors if key.endswith("/projection")]
        return {node: Signature(tensors[f"{node}/projection"], tensors[f"{node}/norms"]) for node in nodes}
    except (frames.FrameError, ValueError, KeyError):
        return {}


def changed_nodes(
    before: Mapping[str, Signature], after: Mapping[str, Signature], order: Sequence[str]
) -> Sequence[tuple[str, float]]:
    """Nodes whose output is another one now, in order, with how far it moved; equal ones are left out."""
    found = [(name, moved(before[name], after[name])) for name in order if name in before and name in after]
    return [(name, distance) for name, distance in found if distance > 0]


def _projected(tensor: Tensor, number: int) -> Tensor:
    """[64] fp64 of one tensor: each token onto directions of its width, tokens added up with signs."""
    flat = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
    width = flat.shape[1]
    draw = torch.Generator().manual_seed(_SEED + number)
    directions = _signs((width, DIRECTIONS), draw)
    total = torch.zeros(DIRECTIONS, dtype=torch.float64)
    rows = max(1, _CHUNK // max(1, width))
    for start in range(0, flat.shape[0], rows):
        part = flat[start : start + rows]
        signs = _signs((part.shape[0], DIRECTIONS), draw)
        total += ((part.float().nan_to_num(0.0, 0.0, 0.0) @ directions) * signs).double().sum(0)
    return total


def _signs(shape: tuple[int, int], draw: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=draw).float() * 2 - 1

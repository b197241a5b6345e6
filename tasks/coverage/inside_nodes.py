"""Which captured calls a compiled node never contains: those of the code between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from day0.adapters.base.operator_call import OperatorCall


def between_nodes(calls: Iterable[OperatorCall]) -> frozenset[str]:
    """Signatures of the calls that no node makes, wherever they are made.

    A model's containers (`model` around `model.layers.0`) make masks and positions, its caller samples:
    a stack that is given nodes as graphs never sees these, the host runs them. What a numbered layer, or a
    part without layers below it (`lm_head`, `model.norm`), makes is inside of a node.

    Args:
        calls: of the whole model, which shows what its containers are.
    """
    kept = list(calls)
    paths = {path for call in kept for path in paths_of(call)}
    numbered = [path for path in paths if _is_numbered(path)]
    containers = {
        path
        for path in paths
        if not path or (not _is_numbered(path) and any(one.startswith(f"{path}.") for one in numbered))
    }
    return frozenset(call.signature for call in kept if containers.issuperset(paths_of(call)))


def paths_of(call: OperatorCall) -> Sequence[str]:
    """Module paths that make the call."""
    return call.modules or [call.module]


def _is_numbered(path: str) -> bool:
    return any(part.isdigit() for part in path.split("."))

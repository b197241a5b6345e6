"""Whether capturing changes what is captured: the target node by node against the target as a whole."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.target import Target
from day0.adapters.models.walk import Glue, Walk
from day0.adapters.models.weights import resolve_weights
from day0_worker.dtypes import torch_dtype

from ... import thresholds
from ...reference_arm import loose_weights, reference_options
from ...target_nodes import TargetNodes
from ..measures.metrics import distance
from ..measures.values import float_tensors
from ..walk.case import Case


def same_unobserved(case: Case, target: Target, folder: Path | None) -> bool | None:
    """Whether the target gives the same logits with every node's output captured and with none.

    Captured: its own stream, node by node, as the comparison runs it. Not captured: the whole model, loaded
    and run by the stack's own code. Both round alike, so they differ by at most an ULP in all.

    Args:
        case: on its main pass.
        target: that is compared.
        folder: of the release; None where it is not local.

    Returns:
        None where the target loads no whole models, or fails at one of both.
    """
    if folder is None or "model" not in target.describe().capabilities:
        return None
    try:
        captured = _captured(case, target)
        target.load(str(folder), dtype=case.dtype)
        plain = float_tensors(target.score([list(case.passes[0].ids[0])]).outputs)
    except Day0Error:
        return None
    if captured is None or not plain or captured.shape != plain[0].shape:
        return None
    apart = distance(captured, plain[0], dtype=torch_dtype(case.dtype))
    return apart.nonfinite == 0 and apart.rel_l2 <= thresholds.NUMERICS_OBSERVER[case.dtype]


def _captured(case: Case, target: Target) -> Tensor | None:
    nodes = TargetNodes(target, case.skeleton, case.dtype)
    loose = loose_weights(case.skeleton, case.checkpoint)
    glue = Glue(case.skeleton, case.dtype, reference_options(case.options), loose)
    logits: Tensor | None = None
    with Walk(case.skeleton, case.passes[0].ids, case.dtype, glue=glue) as walk:
        for call in walk:
            node = case.skeleton.node(call.node)
            answer = nodes.run(node, resolve_weights(node, case.checkpoint), call.call, mode="prefill")
            tensors = float_tensors(answer.outputs)
            logits = tensors[0] if tensors and node.role == "head" else logits
            call.reply(answer.outputs)
    return logits

"""Inductor as a backend that counts: operators of the graphs it is given, kernels that come out."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any, Dict

import torch

from day0_worker.executable import Executable


def counting_backend(made: Executable) -> Any:
    """A backend for `torch.compile` that writes into `made` what each compilation was given and gave.

    Operators are those after torch's decompositions, which inductor lowers. Kernels are `generated` ones and
    calls of `extern` ones, such as matrix products of a library.
    """
    from torch._dynamo.utils import counters
    from torch._inductor import metrics
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def so_far() -> Dict[str, int]:
        return {
            "generated": int(metrics.generated_kernel_count),
            "extern": int(counters["inductor"]["extern_calls"]),
        }

    def inner(graph: Any, inputs: Any, **options: Any) -> Any:
        before = so_far()
        result = compile_fx_inner(graph, inputs, **options)
        found = Counter(
            str(node.target) for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)
        )
        if made.graphs == 0 or made.breaks:
            made.operators = dict(Counter(made.operators) + found)
            new = {name: count - before[name] for name, count in so_far().items()}
            made.kernels = {name: made.kernels.get(name, 0) + count for name, count in new.items()}
        made.graphs += 1
        return result

    def backend(graph: Any, inputs: Any, **options: Any) -> Any:
        with _every_graph_seen():
            return compile_fx(graph, inputs, inner_compile=inner)

    return backend


def _every_graph_seen() -> Any:
    """Without torch's cache of whole compilations, which hands out what an earlier process made unseen.

    Inductor's own cache, one step below, stays: it counts what it hands out.
    """
    from torch._functorch import config

    known = hasattr(config, "enable_autograd_cache")
    return config.patch(enable_autograd_cache=False) if known else contextlib.nullcontext()

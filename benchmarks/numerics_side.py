"""One measured process of `benchmarks/numerics.py`; says what came of it as JSON on its last line.

python benchmarks/numerics_side.py compare|read|plain MODEL STORE [PROMPTS]
python benchmarks/numerics_side.py small FOLDER STORE
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Node, Skeleton
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton_store import load_or_build_skeleton
from day0.tasks.job import NumericsOptions

MEMORY = 8 * 2**30
PROMPT = "The capital of France is"
TARGET = "eager@cpu/bf16"
TOKENS = 512  # of the small model
_CHUNK = 4  # experts that are read and dequantised at a time, as many as numerics holds
_AHEAD = 2 * 2**30  # bytes that may be on their way meanwhile


def compare(model: str, store: str, prompts: str = "auto") -> dict[str, Any]:
    """`measure_numerics` on a large release, from the worker's being ready to the record."""
    began = time.perf_counter()
    release = open_release(model)
    skeleton = load_or_build_skeleton(release, RunStore(store))
    opened = time.perf_counter() - began
    asked = NumericsOptions(prompts=prompts)
    record, seconds, ready = _measured(release, skeleton, store, asked=asked)
    facts = record.facts
    return {
        "seconds": seconds,
        "took": dict(_took()),
        "opened": opened,
        "ready": ready,
        "verdict": record.verdict,
        "nodes": len(facts.blocks),
        "failed": [block.name for block in facts.blocks if block.verdict != "pass"],
        "prompts": {one.name: one.tokens for one in facts.logits.prompts} if facts.logits else {},
        "bytes_touched": facts.bytes_read,
        "tokens": facts.tokens,
        "reference_seconds": record.observations.reference_seconds,
        "target_seconds": record.observations.target_seconds,
        "own_peak": record.observations.peak_memory,
    }


def _measured(
    release: Release, skeleton: Skeleton, store: str, prompt: str = "", **question: Any
) -> tuple[Any, float, float]:
    """The record, the seconds that it took, and those until the worker was ready."""
    from day0.adapters.targets.open import open_target
    from day0.tasks.numerics.measure import measure_numerics
    from day0.tasks.numerics.question import Question

    began = time.perf_counter()
    with open_target(TargetSpec.parse(TARGET), memory_limit=MEMORY) as target:
        description = target.describe()
        ready = time.perf_counter() - began
        began = time.perf_counter()
        asked = Question(
            release, skeleton, RunStore(store), prompt, progress=_told, memory=MEMORY, **question
        )
        record = measure_numerics(asked, target, description)
        return record, time.perf_counter() - began, ready


def small(folder: str, store: str) -> dict[str, Any]:
    """A comparison on 512 tokens, and stock transformers' passes over them in the same process."""
    release = open_release(folder)
    skeleton = load_or_build_skeleton(release, RunStore(store))
    asked = NumericsOptions(prompts="texts")
    whole, whole_seconds, _ = _measured(
        release, skeleton, f"{store}-whole", PROMPT, tokens=TOKENS, asked=asked
    )
    without_check()
    record, seconds, _ = _measured(release, skeleton, store, tokens=TOKENS, asked=asked)
    passes = {dtype: _stock_seconds(folder, dtype, record.facts.tokens) for dtype in ("float32", "bfloat16")}
    return {
        "seconds": seconds,
        "whole_seconds": whole_seconds,
        "whole_check": whole.facts.reference_check.state,
        "stock": passes,
        "verdict": whole.verdict,
        "tokens": record.facts.tokens,
        "reference_seconds": record.observations.reference_seconds,
        "target_seconds": record.observations.target_seconds,
        "own_peak": record.observations.peak_memory,
    }


def _stock_seconds(folder: str, dtype: str, length: int) -> float:
    """The faster of two forwards by `from_pretrained`, on ids that a tokenizer might give."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    ids = torch.arange(length)[None] * 89 % model.config.vocab_size
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
        taken.append(time.perf_counter() - began)
    return min(taken)


def without_check() -> None:
    """Leaves out what asks stock transformers whether the reference is right, a process of its own."""
    from day0.tasks.numerics.record_parts import ReferenceCheck
    from day0.tasks.numerics.trust import reference_trust

    setattr(reference_trust, "check_reference", lambda *given, **named: ReferenceCheck(detail="left out"))  # noqa: B010  # not exported


_ENDS: list[tuple[str, float]] = []
"""Nodes, and when each was done."""


def _took() -> Iterator[tuple[str, float]]:
    """Seconds of each node but the first, which others are part of."""
    for (_, before), (name, after) in pairwise(_ENDS):
        yield name, after - before


def _told(step: str, done: int, total: int, note: str = "") -> None:
    _ENDS.append((note, time.monotonic()))
    print(f"{time.monotonic() % 1e5:.1f} {step} {done}/{total} {note}", file=sys.stderr, flush=True)


def read(model: str, store: str) -> dict[str, Any]:
    """Every tensor read once and dequantised to fp32 by our kernels, the next ones on their way meanwhile."""
    from day0_worker.weights import evaluate_into

    return _read(model, store, lambda out, placed, values: evaluate_into([out], placed, values))


def plain(model: str, store: str) -> dict[str, Any]:
    """The same with what stock torch offers: a conversion, and a product with the scales."""
    return _read(model, store, _filled_plainly)


def _filled_plainly(out: Any, expression: Any, values: Any) -> None:
    """Fills a tensor with what an expression of a release with block scales stands for."""
    from day0_worker.weights import described

    if "stack" in expression:
        for index, part in enumerate(expression["stack"]):
            _filled_plainly(out.select(expression["dim"] % out.dim(), index), part, values)
    elif "cat" in expression:
        dim, place = expression["dim"] % out.dim(), 0
        for part in expression["cat"]:
            size = described(part, values)[0][dim]
            _filled_plainly(out.narrow(dim, place, size), part, values)
            place += size
    elif "dequantize" in expression:
        out.copy_(values[expression["weight"]["value"]])
        _scale(out, values[expression["scale"]["value"]], *expression["block"])
    else:
        out.copy_(values[expression["value"]])


def _scale(out: Any, scale: Any, rows: int, columns: int) -> None:
    if out.shape[0] % rows == out.shape[1] % columns == 0:
        out.view(len(scale), rows, -1, columns).mul_(scale[:, None, :, None])
        return
    spread = scale.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    out.mul_(spread[: out.shape[0], : out.shape[1]])


def _read(model: str, store: str, fill: Callable[[Any, Any, Any], None]) -> dict[str, Any]:
    import torch

    from day0.adapters.models.buffers import Buffers
    from day0.adapters.models.raw_tensors import RawTensors, located
    from day0_worker.weights import described

    release = open_release(model)
    skeleton = load_or_build_skeleton(release, RunStore(store))
    buffers = Buffers(2**30)
    raw = RawTensors(release.checkpoint, _AHEAD, buffers)
    waited = 0.0
    began = time.perf_counter()
    parts = [part for node in skeleton.nodes if node.called for part in _parts(node, raw)]
    for place, part in enumerate(parts):
        held = raw.hold(part)
        if place + 1 < len(parts):
            raw.read_ahead(parts[place + 1], "next")
        for expression in part:
            waiting = time.perf_counter()
            placed, values = located(held, expression)
            waited += time.perf_counter() - waiting
            fill(buffers.take(described(placed, values)[0], torch.float32), placed, values)
    seconds = time.perf_counter() - began
    raw.close()
    return {"seconds": seconds, "waited": waited, "bytes": raw.bytes_read}


def _parts(node: Node, raw: Any) -> Iterator[list[Any]]:
    """Expressions that are read at a time: a node's own, then some experts' after some others'."""
    from day0.adapters.models.expert_slices import compacted
    from day0.adapters.models.weights import resolved

    own = [name for name in node.weights if not node.experts or not name.startswith(f"{node.experts}.")]
    expressions = {name: resolved(recipe.expression, raw.leaf) for name, recipe in node.weights.items()}
    yield [expressions[name] for name in own]
    stacked = [name for name in node.weights if name not in own]
    count = node.weights[stacked[0]].shape[0] if stacked else 0
    for start in range(0, count, _CHUNK):
        ids = range(start, min(count, start + _CHUNK))
        yield [compacted(expressions[name], ids) for name in stacked]


def main() -> None:
    what, *given = sys.argv[1:]
    if what != "small":  # a cut smaller than a large release is read like one
        from day0.adapters.models import raw_tensors

        raw_tensors.STAGED_BYTES = 0
        without_check()
    said = {"compare": compare, "read": read, "plain": plain, "small": small}[what](*given)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, below = (one.ru_utime + one.ru_stime for one in usage)
    print(json.dumps({**said, "cpu": own, "cpu_below": below}))


if __name__ == "__main__":
    main()

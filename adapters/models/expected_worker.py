"""The process that works out what a config implies: `python -m day0.adapters.models.expected_worker`.

Standard input holds one JSON object: `config` (config.json as parsed) and `asked` (names of a checkpoint).
Standard output gets JSON lines: the answer's head, then one list for each tensor, then `null` as the last.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any, TextIO


def main() -> None:
    """Answers the one question on standard input."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not enter the answer
    gc.disable()  # looking for cycles takes a quarter of the time, and the process ends with its answer
    question = json.load(sys.stdin)
    _answer(question["config"], question["asked"], answer)
    answer.close()


def _answer(config: dict[str, Any], asked: list[str], out: TextIO) -> None:
    from ..base.errors import SkeletonError
    from ..base.values import Anomaly
    from .architecture import build_meta_model, declared_dtype
    from .capture import phases_of
    from .expected_tensors import expected_tensors

    try:
        built = build_meta_model(config, declared_dtype(config))
    except SkeletonError as error:
        _line(out, {"reason": error.message, "code": error.code})
        _line(out, None)
        return
    found = expected_tensors(built.model, asked)
    failed: list[Anomaly] = []
    phases = list(phases_of(built.model, built.model.config, report=failed.append))
    head = {
        "architecture": built.architecture,
        "tied": dict(found.tied),
        "names": {name: own for name, own in found.names.items() if name != own},
        "ignored": list(found.ignored),
        "operators": [
            [call.op, call.phase, call.count]
            for phase in phases
            for call in phase.calls
            if call.branch != "padded"
        ],
        "failed": [[item.subject, item.message] for item in failed if item.code == "phase_not_captured"],
    }
    _line(out, head)
    for tensor in found.tensors:
        published = tensor.published if tensor.published != tensor.name else ""
        _line(out, [tensor.name, published, tensor.dtype, tensor.shape, tensor.flags])
    _line(out, None)


def _line(out: TextIO, value: Any) -> None:
    out.write(json.dumps(value, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

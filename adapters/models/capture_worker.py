"""The process that captures a model: `python -m day0.adapters.models.capture_worker`.

Standard input holds one JSON object: `config` (config.json as parsed) and `requests` (see `CaptureRequest`).
Standard output gets JSON lines: `[number of the request, part]` for each part as it is there, then `null`.
"""

from __future__ import annotations

import gc
import json
import os
import sys

from ..base.operator_capture import CaptureRequest


def main() -> None:
    """Answers the one question on standard input."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not enter the answer
    gc.disable()  # looking for cycles takes time, and nearly all that is built stays to the end
    from .capture_model import capture_parts

    question = json.load(sys.stdin)
    for number, asked in enumerate(question["requests"]):
        for part in capture_parts(question["config"], CaptureRequest.model_validate(asked)):
            answer.write(f"[{number},{part.model_dump_json(exclude={'request'}, exclude_defaults=True)}]\n")
            answer.flush()
        gc.collect()
    answer.write("null\n")
    answer.close()


if __name__ == "__main__":
    main()

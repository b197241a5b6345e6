"""What `make demo` runs: a real model, made once under `.day0/models`, adapted to two targets."""

from __future__ import annotations

import sys
from pathlib import Path

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.progress import log_progress

from .cli import UNUSABLE, main
from .demo_model import ensure_demo_model
from .progress_display import show_progress
from .terminal import say

MODELS = Path(".day0/models")
_UNDECIDED = 3
_PROMPTS = "texts,padded,shifted,decode"
"""All but the one of 2,048 tokens, which takes as long as all others where a CPU has no units for bf16."""
TARGETS = ("eager@cpu/bf16", "onnxruntime@cpu/fp32")


def demo() -> int:
    """Makes the demo model where it is not there yet, and runs `day0 adapt` on it.

    Returns:
        That command's exit status, but 0 where something stays undecided: ONNX Runtime has no loader that
        could be asked, and saying so is part of what the demo shows.
    """
    try:
        with show_progress():
            model = ensure_demo_model(MODELS, log_progress)
    except Day0Error as error:
        say(f"day0: {error}")
        return UNUSABLE
    command = ["adapt", str(model), *(part for target in TARGETS for part in ("--target", target))]
    command += ["--prompts", _PROMPTS]
    say(f"day0 {' '.join(command)}")
    status = main(command)
    return 0 if status == _UNDECIDED else status


if __name__ == "__main__":
    sys.exit(demo())

"""The command that makes a comparison again, for the evidence of a finding."""

from __future__ import annotations

import shlex

from day0.adapters.base.target_spec import TargetSpec

from .prompts.passes import AUTO
from .question import Question


def command_of(question: Question, spec: TargetSpec) -> str:
    """`day0 compare ...` with what decides on which prompts, and against what, nodes are compared."""
    asked = question.asked
    words = ["day0", "compare", question.release.model, "--target", str(spec)]
    if asked.reference:
        words += ["--reference", asked.reference]
    elif asked.prompts != AUTO:
        words += ["--prompts", asked.prompts]
    return shlex.join(words)

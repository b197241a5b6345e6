"""The script that compares a model's nodes again, for a fault that no script of one operator shows."""

from __future__ import annotations

from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.sources.local import existing_path

from .question import Question
from .record import FirstFault

_SCRIPT = '''"""@TITLE@

No operator shows it alone, so this compares the model's nodes with the reference again, up to the one at
fault. It needs Day0, the stack and the release. Words after the script's name start the Python in which the
stack runs, as --worker-command does. It exits with 1 where the fault shows, with 0 where it does not, and
with 2 where it cannot tell: the release or the target cannot be used here.
"""

import sys

from day0.tasks.numerics.again import compare_again

if __name__ == "__main__":
    sys.exit(
        compare_again(
@ARGUMENTS@
            command=sys.argv[1:],
        )
    )
'''


def again_script(question: Question, spec: TargetSpec, fault: FirstFault) -> str:
    """The script; empty where a bundle stands for the reference, and for a node of images.

    Args:
        question: of the comparison that found the fault.
        spec: of its target.
        fault: that it found.
    """
    release = question.release
    if question.bundle is not None or fault.block not in {node.name for node in question.skeleton.nodes}:
        return ""
    at = f"{fault.op} in {fault.fragment}" if fault.op else fault.fragment or fault.block
    here = existing_path(release.model)
    pinned = here is not None or "@" in release.model or "://" in release.model
    arguments = {
        "model": str(here.resolve()) if here is not None else release.model,
        "revision": "" if pinned else release.revision,
        "target": str(spec),
        "block": fault.block,
        "prompt": question.prompt,
        "prompts": question.asked.prompts,
        "tokens": question.tokens,
    }
    lines = [f"            {name}={value!r}," for name, value in arguments.items()]
    title = _in_docstring(f"{at} on {spec}: wrong while the model runs.")
    return _SCRIPT.replace("@TITLE@", title).replace("@ARGUMENTS@", "\n".join(lines))


def _in_docstring(text: str) -> str:
    """On one line, with nothing that ends the docstring or escapes from it."""
    return "".join(letter if letter.isprintable() else " " for letter in text).translate({34: "'", 92: "/"})

"""A stored record may be used again only while its stage computes the same: changed code needs a new version.

`python tests/tasks/test_stage_versions.py` writes down the sources as they are, once the version is raised
(or the change provably gives the same facts, and the commit says why).
"""

from __future__ import annotations

import ast
import hashlib
import json
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITTEN_DOWN = Path(__file__).with_name("stage_sources.json")
STAGES = ("inventory", "coverage", "minimal", "numerics", "plan", "scale")


def _working_lines(text: str) -> list[str]:
    """The lines that do something: no docstring, no comment line, no blank line."""
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                told.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [line for number, line in lines if line and not line.startswith("#") and number not in told]


def source_digest(stage: str) -> str:
    """Digest over what the stage's modules do, the same under every Python."""
    sha = hashlib.sha256()
    folder = ROOT / "tasks" / stage
    for path in sorted(folder.rglob("*.py")):
        lines = _working_lines(path.read_text(encoding="utf-8"))
        sha.update("\n".join([path.relative_to(folder).as_posix(), *lines, ""]).encode())
    return sha.hexdigest()[:16]


def sources_now() -> dict[str, dict[str, str | int]]:
    return {
        stage: {
            "version": import_module(f"day0.tasks.{stage}.record").STAGE_VERSION,
            "source": source_digest(stage),
        }
        for stage in STAGES
    }


def test_a_stage_whose_source_changed_has_a_new_version() -> None:
    assert sources_now() == json.loads(WRITTEN_DOWN.read_text(encoding="utf-8"))


def test_what_does_not_change_results_does_not_count() -> None:
    told = '"""M."""\n\ndef f(x):\n    """D.\n\n    E."""\n    # why\n    return x\n'
    assert _working_lines(told) == ["def f(x):", "return x"]


if __name__ == "__main__":
    WRITTEN_DOWN.write_text(json.dumps(sources_now(), indent=2) + "\n", encoding="utf-8")

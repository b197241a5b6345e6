"""The source of the installed transformers as syntax trees; nothing of it is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path


@lru_cache(maxsize=1)
def root() -> Path | None:
    """Folder of the installed transformers; None without one."""
    spec = find_spec("transformers")
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


@lru_cache(maxsize=256)
def tree_of(path: str) -> ast.Module | None:
    """The tree of one of its files, by its path inside the package; None where there is none."""
    folder = root()
    file = folder / path if folder else None
    if file is None or not file.is_file():
        return None
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=256)
def text_of(path: str) -> str:
    """The text of one of its files; empty where there is none."""
    folder = root()
    file = folder / path if folder else None
    return file.read_text(encoding="utf-8") if file is not None and file.is_file() else ""


def calls_in(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the last part of the name that is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield last_name(node.func), node


def last_name(node: ast.AST) -> str:
    """`b` of `a.b` and of `b`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def text_argument(call: ast.Call, keyword: str = "", place: int = 0) -> str:
    """The constant text of an argument; empty where it is none."""
    given = next((item.value for item in call.keywords if item.arg == keyword), None)
    if given is None and len(call.args) > place:
        given = call.args[place]
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""


def assigned(tree: ast.AST, name: str) -> ast.expr | None:
    """The value that the name is given somewhere in the tree; None where it is not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return value
    return None

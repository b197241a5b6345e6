"""What single classes and functions of one file of transformers ask for: hub kernels and kernel packages."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from .code_dangers import KERNEL_PACKAGES
from .transformers_source import calls_in, last_name, text_argument, tree_of

_LAYER_DECORATORS = frozenset({"use_kernel_forward_from_hub", "use_kernel_func_from_hub"})
_WITH_PACKAGE = "use_kernel_func_from_hub_with_fallback"


@dataclass
class Unit:
    """One class or function at the top of a file.

    Attributes:
        layers: names under which the hub's map lists a kernel for it.
        packages: that it uses where they are there, by a decorator.
        repositories: that it fetches by name.
        names: that it mentions.
        is_class: whether it is one.
    """

    layers: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)
    repositories: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    is_class: bool = False


@lru_cache(maxsize=64)
def units_of(path: str) -> Mapping[str, Unit]:
    """Name -> unit, of the file at that path inside transformers."""
    tree = tree_of(path)
    if tree is None:
        return {}
    imported = _imports(tree)
    found: dict[str, Unit] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and _at_top(tree, node):
            found[node.name] = _unit(node, imported)
    return found


def reachable(units: Mapping[str, Unit], starts: Iterable[str]) -> Iterable[tuple[str, str, Unit]]:
    """Each start, and each function that it mentions directly or by others: start, name, unit."""
    for start in starts:
        seen: set[str] = set()
        open_names = [start]
        while open_names:
            name = open_names.pop()
            if name in seen or name not in units:
                continue
            seen.add(name)
            yield start, name, units[name]
            # Classes are starts of their own where the model has them.
            open_names += [
                other for other in units[name].names if other in units and not units[other].is_class
            ]


def _at_top(tree: ast.Module, node: ast.AST) -> bool:
    """At the top, or under an `if` or `try` there."""
    blocks: list[ast.AST] = [tree]
    while blocks:
        for child in ast.iter_child_nodes(blocks.pop()):
            if child is node:
                return True
            if isinstance(child, ast.If | ast.Try):
                blocks.append(child)
    return False


def _unit(node: ast.ClassDef | ast.FunctionDef, imported: Mapping[str, str]) -> Unit:
    unit = Unit(is_class=isinstance(node, ast.ClassDef))
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        name = last_name(decorator.func)
        if name in _LAYER_DECORATORS or name == _WITH_PACKAGE:
            unit.layers.add(text_argument(decorator))
        if name == _WITH_PACKAGE:
            unit.packages.add(text_argument(decorator, "package", 1))
    for name, call in calls_in(node):
        if name in ("get_kernel", "load_kernel"):
            unit.repositories.add(text_argument(call, "repo_id"))
    names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
    unit.names = names - {node.name}
    unit.packages |= {imported[name] for name in names if name in imported} | set(_imports(node).values())
    unit.layers.discard("")
    unit.packages.discard("")
    unit.repositories.discard("")
    return unit


def _imports(tree: ast.AST) -> dict[str, str]:
    """Name -> package of kernels that it is imported from; imports inside functions stay theirs."""
    found: dict[str, str] = {}
    inside = isinstance(tree, ast.Module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            top = (node.module or "").partition(".")[0]
            if top in KERNEL_PACKAGES - {"kernels"} and not (inside and not _at_top_module(tree, node)):
                found |= {item.asname or item.name: top for item in node.names}
        elif isinstance(node, ast.Import) and not (inside and not _at_top_module(tree, node)):
            for item in node.names:
                if item.name.partition(".")[0] in KERNEL_PACKAGES - {"kernels"}:
                    found[item.asname or item.name.partition(".")[0]] = item.name.partition(".")[0]
    return found


def _at_top_module(tree: ast.AST, node: ast.AST) -> bool:
    return not isinstance(tree, ast.Module) or _at_top(tree, node)

"""A stranger's Python read as text: what it defines, imports, calls and asks of a target. Never run."""

from __future__ import annotations

import ast
import posixpath
import re
import sys
import warnings
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from .code_dangers import DECODERS, INSIDE, KERNEL_PACKAGES, call_danger, danger_of

MAX_BYTES = 600_000  # a tree takes up to some 400 bytes a character; the longest published file has 300 kB
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_PLAIN_CODINGS = ("utf-8", "utf8", "utf_8", "ascii", "us-ascii", "latin-1", "iso-8859-1")
_KERNEL_LOADERS = frozenset(
    {"get_kernel", "load_kernel", "LayerRepository", "FuncRepository", "get_local_kernel"}
)
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_LOOKED_AT = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call,
              ast.Attribute, ast.Name)  # fmt: skip
_BUILTINS = frozenset({"exec", "eval", "compile", "open", "__import__", "getattr", "__builtins__", "bytes"})


@dataclass
class Reading:
    """What one file holds.

    Attributes:
        path: in the release.
        lines: of it.
        classes: name, line and bases as written.
        functions: how many.
        names: classes, functions and imported names that the file gives out.
        packages: top names imported from outside, the standard library left out.
        relative: files of the release that it imports.
        missing: modules of the release that it imports and that are not there.
        kernels: that it asks for: `triton:NAME`, `hub:REPO`, `torch:NAME`, `package:NAME`.
        calls: kind, name as resolved, line.
        error: why it could not be read.
    """

    path: str
    lines: int = 0
    classes: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    functions: int = 0
    names: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)
    relative: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    calls: set[tuple[str, str, int]] = field(default_factory=set)
    error: str = ""


def read_code(path: str, data: bytes, paths: Set[str]) -> Reading:
    """Reads one file.

    Args:
        path: in the release.
        data: its bytes.
        paths: of all files of the release.
    """
    reading = Reading(path, lines=data.count(b"\n") + (not data.endswith(b"\n") and bool(data)))
    if len(data) > MAX_BYTES:
        reading.error = f"has {len(data)} bytes, more than {MAX_BYTES}"
        return reading
    try:
        text = data.decode("utf-8-sig")
        with warnings.catch_warnings():  # remarks on odd escapes are the parser's, not ours
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except UnicodeDecodeError as error:
        reading.error = f"is not UTF-8 at byte {error.start}"
    except SyntaxError as error:
        reading.error = f"is not Python: {error.msg} in line {error.lineno or 0}"
    except (RecursionError, MemoryError):
        reading.error = "is nested too deeply to be parsed"
    except ValueError as error:
        reading.error = f"is not Python: {error}"
    else:
        _Walk(reading, tree, paths).run()
        reading.calls |= _codings(text)
    return reading


class _Walk:
    """One pass over a tree, without recursion: a stranger's tree may be deeper than the stack."""

    def __init__(self, reading: Reading, tree: ast.Module, paths: Set[str]) -> None:
        self.reading, self.tree, self.paths = reading, tree, paths
        self.aliases: dict[str, str] = {}
        self.decoders: list[int] = []

    def run(self) -> None:
        """Imports first, for they name what the rest refers to."""
        nodes = list(_guarded(self.tree))
        for node, guarded in nodes:
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node, guarded)
        for node, _ in nodes:
            self._visit(node)
        executes = [line for kind, name, line in self.reading.calls if name in ("exec", "eval", "compile")]
        if executes and self.decoders:
            self.reading.calls.add(("execute", "decoded text", self.decoders[0]))

    def _import(self, node: ast.Import) -> None:
        for item in node.names:
            self.aliases[item.asname or item.name.partition(".")[0]] = (
                item.name if item.asname else item.name.partition(".")[0]
            )
            self.reading.names.add(item.asname or item.name)
            self._package(item.name)

    def _import_from(self, node: ast.ImportFrom, guarded: bool) -> None:
        module = node.module or ""
        for item in node.names:
            self.reading.names.add(item.asname or item.name)
            if not node.level:
                self.aliases[item.asname or item.name] = f"{module}.{item.name}"
        if not node.level:
            self._package(module)
            return
        folder = posixpath.dirname(self.reading.path)
        for _ in range(node.level - 1):
            folder = posixpath.dirname(folder) if folder else ".."
        wanted = [module] if module else [item.name for item in node.names]
        for name in wanted:
            base = posixpath.join(folder, *name.split("."))
            found = next((path for path in (f"{base}.py", f"{base}/__init__.py") if path in self.paths), None)
            init = posixpath.join(folder, "__init__.py")
            if found or (not module and init in self.paths):
                self.reading.relative.add(found or init)
            elif not guarded:
                self.reading.missing.add("." * node.level + name)

    def _package(self, module: str) -> None:
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names:
            self.reading.packages.add(top)
        if top in KERNEL_PACKAGES:
            self.reading.kernels.add(f"package:{top}")

    def _visit(self, node: ast.AST) -> None:
        reading = self.reading
        if isinstance(node, ast.ClassDef):
            bases = tuple(filter(None, (self._written(base) for base in node.bases)))
            reading.classes.append((node.name, node.lineno, bases))
            reading.names.add(node.name)
        elif isinstance(node, _FUNCTIONS):
            reading.functions += 1
            reading.names.add(node.name)
            self._decorators(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            self._reference(node)

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._name(target) in ("triton.jit", "triton.experimental.gluon.jit", "tilelang.jit"):
                self.reading.kernels.add(f"triton:{node.name}")

    def _call(self, node: ast.Call) -> None:
        name = self._name(node.func)
        if name == "getattr" and node.args:
            owner = self._name(node.args[0])
            wanted = node.args[1] if len(node.args) > 1 else None
            if isinstance(wanted, ast.Constant) and isinstance(wanted.value, str):
                self._note(f"{owner}.{wanted.value}", node.lineno)
            elif owner in ("os", "builtins", "sys", "subprocess", "posix", "__builtins__"):
                self.reading.calls.add(("execute", f"getattr({owner}, ...)", node.lineno))
        written = name or self._written(node.func)  # of a local object only the method's name is known
        kind = call_danger(written, node) if written not in self.reading.names else ""
        if kind:
            self.reading.calls.add((kind, written[:200], node.lineno))
        if name.rpartition(".")[2] in _KERNEL_LOADERS:
            keyword = next((item.value for item in node.keywords if item.arg == "repo_id"), None)
            given = node.args[0] if node.args else keyword
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                self.reading.kernels.add(f"hub:{given.value[:200]}")

    def _reference(self, node: ast.Attribute | ast.Name) -> None:
        if isinstance(node, ast.Attribute) and node.attr in INSIDE:
            self.reading.calls.add(("execute", node.attr, node.lineno))
        name = self._name(node)
        if name in DECODERS:
            self.decoders.append(node.lineno)
        self._note(name, node.lineno)
        parts = name.split(".")
        if name.startswith("torch.ops.") and len(parts) == 4 and parts[2] not in ("aten", "prims"):
            self.reading.kernels.add(f"torch:{parts[2]}.{parts[3]}")

    def _note(self, name: str, line: int) -> None:
        kind = danger_of(name)
        # A module's bare name does nothing yet; its attributes and what was imported from it are looked at.
        if kind and (name not in self.aliases.values() or "." in name or name in ("exec", "eval")):
            self.reading.calls.add((kind, name, line))

    def _name(self, node: ast.AST) -> str:
        """The dotted name of something imported or built in; empty for anything else."""
        if isinstance(node, ast.Call):
            return _imported(node)
        written = self._written(node)
        first, dot, rest = written.partition(".")
        if first in self.aliases:
            return f"{self.aliases[first]}{dot}{rest}"
        dynamic = (
            isinstance(node, ast.Attribute)
            and written
            and not isinstance(node.value, ast.Name | ast.Attribute)
        )
        return written if first in _BUILTINS or (dynamic and first != "()") else ""

    def _written(self, node: ast.AST) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < 20:
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            return ".".join([node.id, *reversed(parts)])
        if isinstance(node, ast.Call) and parts:  # `Path(x).open`, `__import__("os").system`
            inner = _imported(node)
            return ".".join([inner or "()", *reversed(parts)])
        return ""


def _imported(call: ast.Call) -> str:
    """The module that `__import__("x")` gives; empty for another call."""
    named = isinstance(call.func, ast.Name) and call.func.id == "__import__" and call.args
    given = call.args[0] if named else None
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""


def _guarded(tree: ast.Module) -> Iterable[tuple[ast.AST, bool]]:
    """The nodes that matter, with whether they stand where an import is optional: in `try`, `if`, a function.

    `ast.walk` also visits every constant and context, which takes three times as long.
    """
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, guarded = stack.pop()
        if isinstance(node, _LOOKED_AT):
            yield node, guarded
        inside = guarded or isinstance(node, ast.Try | ast.If | _FUNCTIONS)
        for name in node._fields:
            value = getattr(node, name)
            if isinstance(value, list):
                stack.extend((child, inside) for child in value if isinstance(child, ast.AST))
            elif isinstance(value, ast.AST) and not isinstance(value, ast.Constant | ast.expr_context):
                stack.append((value, inside))


def _codings(text: str) -> set[tuple[str, str, int]]:
    """A declared encoding that makes Python read other text than the bytes show."""
    found: set[tuple[str, str, int]] = set()
    for number, line in enumerate(text.split("\n", 2)[:2], start=1):
        declared = _CODING.match(line)
        if declared and declared[1].lower() not in _PLAIN_CODINGS:
            found.add(("execute", f"coding {declared[1][:40]}", number))
    return found

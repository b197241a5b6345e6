"""What turns a bare Python into a worker: a few lines of bootstrap and a zip of sources."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path

from .errors import InputError

_MAX_SOURCE_BYTES = 32 * 2**20
_EPOCH = (1980, 1, 1, 0, 0, 0)

# Runs as `python -c BOOTSTRAP` on Python 3.9 or newer. Before anything else is imported it takes the working
# directory off the path, and it moves requests and answers off the standard descriptors, so that a stack
# that reads its standard input or prints cannot disturb the protocol. The sources are unpacked to files,
# not imported from a zip, because tracebacks and compilers read them.
BOOTSTRAP = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import os
requests, answers = os.dup(0), os.dup(1)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.dup2(2, 1)
import io, tempfile, zipfile
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(requests, size - len(data))
        if not piece:
            sys.exit("day0: the parent closed the pipe before it sent the sources")
        data += piece
    return data
home = os.environ.get("DAY0_WORKER_HOME") or tempfile.mkdtemp(prefix="day0-worker-")
os.chdir(home)
with zipfile.ZipFile(io.BytesIO(read(int.from_bytes(read(8), "big")))) as sources:
    sources.extractall(os.path.join(home, "sources"))
sys.path.insert(0, os.path.join(home, "sources", "worker"))
from day0_worker.serve import main
main(requests, answers, os.path.join(home, "sources", "stack"))
"""


def pack_sources(module: str, *others: str) -> bytes:
    """A zip with `day0_worker` below `worker/` and the stack's module and others below `stack/`.

    The `.py` files beside the stack's module go along, as do Day0's own stacks, from which a stack may
    derive; packages above them are sent empty. Nothing is imported to find them.

    Args:
        module: dotted name of the stack's module.
        others: of modules that the stack is to find too, such as ways around.

    Raises:
        InputError: E113, a module's source cannot be found or is larger than a stack should be.
    """
    files: dict[str, bytes] = {}
    for name in ("day0_worker", "day0.adapters.targets.eager", module, *others):
        room = "worker" if name == "day0_worker" else "stack"
        for path, data in _files_of(name):
            files[f"{room}/{path}"] = data
    if sum(len(data) for data in files.values()) > _MAX_SOURCE_BYTES:
        raise InputError(
            f"the sources beside the stack module {module!r} take more than {_MAX_SOURCE_BYTES} bytes",
            code="E113",
            remedy="Put the stack's class into a package of its own.",
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as sources:
        for path in sorted(files):
            sources.writestr(zipfile.ZipInfo(path, _EPOCH), files[path])
    return buffer.getvalue()


def find_module(name: str) -> ModuleSpec | None:
    """Where a module is, found without importing it or any package above it."""
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for depth in range(len(parts)):
        inside = None
        if spec is not None:
            if spec.submodule_search_locations is None:
                return None
            inside = list(spec.submodule_search_locations)
        spec = _spec(".".join(parts[: depth + 1]), inside)
        if spec is None:
            return None
    return spec


def _spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path) if find else None
        if spec is not None:
            found: ModuleSpec = spec
            return found
    return None


def _files_of(name: str) -> Iterable[tuple[str, bytes]]:
    spec = find_module(name)
    if spec is None or not spec.origin or not spec.has_location:
        raise InputError(
            f"the source of the stack module {name!r} cannot be found",
            code="E113",
            remedy="Check the package's entry point and that it is installed with its .py files.",
        )
    origin = Path(spec.origin)
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    if not package:
        yield f"{name}.py", origin.read_bytes()
        return
    parts = package.split(".")
    for depth in range(1, len(parts)):
        yield "/".join(parts[:depth]) + "/__init__.py", b""
    yield "/".join(parts) + "/__init__.py", b""
    for path in sorted(origin.parent.glob("*.py")):
        # A package above the stack's module may import anything; only the stack's own package keeps its body.
        if path.name != "__init__.py" or origin.name == "__init__.py":
            yield "/".join([*parts, path.name]), path.read_bytes()

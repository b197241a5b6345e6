"""Writes transformers_types.json: which minor release of transformers first knew each model type.

A developer runs it when a new transformers is out:
`python -m day0.adapters.models.collect_transformers_types`.

Method: pip names the releases; of each minor release that the table does not cover yet the lowest patch
release is downloaded as a wheel by pip, without its dependencies, and nothing of it is installed or run. Two
files inside the wheel, `models/auto/configuration_auto.py` and (from 5.x on) `models/auto/auto_mappings.py`,
are parsed with `ast`; the keys of `CONFIG_MAPPING_NAMES` (`CONFIG_MAPPING` in the oldest) are the model types
that the release knows. A type counts as known since the first release that has it, and as dropped in the
first one after its last. The wheel is deleted before the next comes: all 4.x and 5.x together are some 600 MB
of downloads, an update is one wheel a minor release.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .transformers_types import TABLE, minor_key

_NAMES = ("CONFIG_MAPPING_NAMES", "CONFIG_MAPPING")
_FILES = ("transformers/models/auto/configuration_auto.py", "transformers/models/auto/auto_mappings.py")


def model_types(sources: Iterable[str]) -> set[str]:
    """The model types that these files map to config classes, read as text."""
    found: set[str] = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                named = any(isinstance(target, ast.Name) and target.id in _NAMES for target in targets)
                if named and node.value is not None:
                    found |= _keys(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if node.func.attr == "update" and isinstance(owner, ast.Name) and owner.id in _NAMES:
                    found |= _keys(node)
    return found


def _keys(value: ast.AST) -> set[str]:
    """Keys of dictionaries and first items of pairs, at any depth."""
    found = set()
    for node in ast.walk(value):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            keys: list[ast.expr | None] = [node.elts[0]]
        elif isinstance(node, ast.Dict):
            keys = list(node.keys)
        else:
            continue
        found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


def table_of(known: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """The table from minor release -> model types."""
    minors = sorted(known, key=minor_key)
    since: dict[str, str] = {}
    last: dict[str, int] = {}
    for place, minor in enumerate(minors):
        for word in known[minor]:
            since.setdefault(word, minor)
            last[word] = place
    dropped = {word: minors[place + 1] for word, place in last.items() if place + 1 < len(minors)}
    return {"checked": minors, "since": dict(sorted(since.items())), "dropped": dict(sorted(dropped.items()))}


def _known(table: Mapping[str, Any]) -> dict[str, list[str]]:
    """Inverse of `table_of`."""
    since, dropped = table["since"], table["dropped"]
    return {
        minor: [
            word
            for word, first in since.items()
            if minor_key(first) <= minor_key(minor)
            and (word not in dropped or minor_key(minor) < minor_key(dropped[word]))
        ]
        for minor in table["checked"]
    }


def _releases() -> dict[str, str]:
    """Minor release from 4.0 on -> its lowest patch release."""
    command = [sys.executable, "-m", "pip", "index", "versions", "transformers"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, str] = {}
    for version in re.findall(r"\b\d+\.\d+\.\d+\b(?!\w)", said.partition("Available versions:")[2]):
        minor = version.rpartition(".")[0]
        if minor_key(minor) >= (4, 0) and (minor not in found or _patch(version) < _patch(found[minor])):
            found[minor] = version
    return found


def _patch(version: str) -> int:
    return int(version.rpartition(".")[2])


def _types_of(version: str) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps",
                   "--only-binary=:all:", "--dest", folder, f"transformers=={version}"]  # fmt: skip
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            held = set(archive.namelist())
            return model_types(archive.read(name).decode() for name in _FILES if name in held)


def main() -> None:
    """Adds the minor releases that the table lacks."""
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"checked": [], "since": {}, "dropped": {}}
    known: dict[str, Iterable[str]] = dict(_known(table))
    for minor, version in sorted(_releases().items(), key=lambda item: minor_key(item[0])):
        if minor not in known:
            known[minor] = _types_of(version)
            print(f"{version}: {len(list(known[minor]))} model types", file=sys.stderr)
            TABLE.write_text(json.dumps(table_of(known), indent=1) + "\n")


if __name__ == "__main__":
    main()

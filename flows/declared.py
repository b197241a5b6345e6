"""Takes over a support list into the run store's registry of a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Value
from day0.adapters.registries.files import add_to_store, store_path
from day0.adapters.registries.importers.choose import read_declared
from day0.adapters.targets.registry import find_stack


class Declared(Value):
    """What was taken over.

    Attributes:
        target: as named.
        list: the file.
        version: that it was read for, in the list's own words.
        declared: what the list claims of how many rows.
        registry: file in the run store that holds the rows.
        unread: what of the list could not be read, a sentence each.
    """

    target: str
    list: str
    version: str
    declared: Mapping[str, int]
    registry: str
    unread: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """For a person."""
        counts = ", ".join(f"{count} {status}" for status, count in self.declared.items())
        yield f"{self.target}: {self.list} ({self.version}) declares {counts}"
        yield from (f"  {unread}" for unread in self.unread)
        yield "  nobody has tried them: they count as unknown until a probe has"
        yield f"registry: {self.registry}"


def declare(spec: TargetSpec, store: RunStore, path: Path, version: str) -> Declared:
    """Adds a list's rows to the registry of a target, as declared ones.

    Args:
        spec: the target.
        store: holds the registry.
        path: of the list.
        version: that it is read for; empty: the newest.

    Raises:
        InputError: E111, unknown stack; E173, the list cannot be read; E175, it is of another kind of stack.
    """
    find_stack(spec.stack)
    registry = read_declared(spec.registry_name, path, version)
    add_to_store(store, registry)
    (fingerprint,) = registry.fingerprints.values()
    counts = Counter(row.status for row in registry.declared.values())
    return Declared(
        target=str(spec),
        list=path.name,
        version=str(fingerprint.exact["version"]),
        declared=dict(sorted(counts.items())),
        registry=store.path(store_path(spec.registry_name)),
        unread=registry.unread,
    )

"""What is known about one target's operators: rows, and the fingerprints they were measured under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..base.values import Fingerprint, digest
from .row import RegistryRow


@dataclass(frozen=True)
class Known:
    """A row as it stands for one target now.

    Attributes:
        row: as recorded.
        grade: `measured` under this very fingerprint, `inherited` from another one of the same family,
            `declared` by a support list that nobody has tried.
    """

    row: RegistryRow
    grade: str


@dataclass(frozen=True)
class Registry:
    """Rows of one `STACK@DEVICE`.

    Attributes:
        name: `STACK@DEVICE`.
        rows: (row key, fingerprint digest) -> row.
        fingerprints: digest -> fingerprint.
    """

    name: str
    rows: Mapping[tuple[str, str], RegistryRow] = field(default_factory=dict)
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)

    def lookup(self, key: str, fingerprint: Fingerprint) -> Known | None:
        """What is known of a row under a fingerprint; one of another family says nothing."""
        exact = self.rows.get((key, fingerprint.digest))
        if exact is not None:
            return Known(exact, "declared" if exact.method == "declared" else "measured")
        related = [
            (digest_, self.rows[key, digest_])
            for digest_, other in sorted(self.fingerprints.items())
            if other.family == fingerprint.family and (key, digest_) in self.rows
        ]
        if not related:
            return None
        measured = [row for _, row in related if row.method != "declared"]
        return Known(measured[-1], "inherited") if measured else Known(related[-1][1], "declared")

    def merged(self, rows: Iterable[RegistryRow], fingerprints: Mapping[str, Fingerprint]) -> Registry:
        """This registry with rows laid over it; of two with one key and fingerprint the new one stays."""
        return Registry(
            name=self.name,
            rows={**self.rows, **{(row.key, row.fingerprint): row for row in rows}},
            fingerprints={**self.fingerprints, **fingerprints},
        )

    def overlaid(self, other: Registry) -> Registry:
        """This registry with another one laid over it."""
        return self.merged(other.rows.values(), other.fingerprints)

    def digest_of(self, keys: Iterable[str], fingerprint: Fingerprint) -> str:
        """Changes whenever what is known of one of these rows changes."""
        known = {key: self.lookup(key, fingerprint) for key in keys}
        return digest(
            {
                key: [found.grade, found.row.model_dump(mode="json")] if found else None
                for key, found in sorted(known.items())
            }
        )

"""What is known about one target's operators: rows, and the fingerprints they were measured under."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..base.values import Fingerprint, digest
from .row import DECLARED, RegistryRow, mark_of

Rows = Mapping[tuple[str, str], RegistryRow]
"""(row key, fingerprint digest) -> row."""

PROBE_ORDER = ("inherited", DECLARED, "")
"""What needs a probe, the first one first: what held under a related version is most likely to be asked for
and cheapest to confirm."""


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

    @property
    def sound(self) -> bool:
        """Whether somebody ran it and it was right; what a list declares never is."""
        return self.grade != DECLARED and self.row.status in ("native", "decomposed")


@dataclass(frozen=True)
class Registry:
    """Rows of one `STACK@DEVICE`.

    Attributes:
        name: `STACK@DEVICE`.
        rows: measured.
        fingerprints: digest -> fingerprint.
        declared: by support lists; never among `rows`.
        unread: what files of it could not be read, a sentence each.
    """

    name: str
    rows: Rows = field(default_factory=dict)
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    declared: Rows = field(default_factory=dict)
    unread: Sequence[str] = ()

    def lookup(self, key: str, fingerprint: Fingerprint) -> Known | None:
        """What is known of a row under a fingerprint; one of another family says nothing.

        Of several related versions the one measured last speaks. A support list is asked last, whatever
        family it names, since a list knows versions and no machines.
        """
        exact = self.rows.get((key, fingerprint.digest))
        if exact is not None:
            return Known(exact, "measured")
        related = [
            row
            for digest_, other in self.fingerprints.items()
            if other.family == fingerprint.family and (row := self.rows.get((key, digest_))) is not None
        ]
        if related:
            return Known(max(related, key=_age), "inherited")
        listed = self._listed(key)
        return None if listed is None else Known(listed, DECLARED)

    def needs_probe(self, key: str, fingerprint: Fingerprint, signatures: Iterable[str] = ()) -> bool:
        """Whether a row should be tried: unknown, inherited and declared ones should.

        Args:
            key: of the row.
            fingerprint: of the target.
            signatures: of the calls at hand: a row that refuses some shapes says nothing of shapes that it
                has not met.
        """
        known = self.lookup(key, fingerprint)
        if known is None or known.grade != "measured":
            return True
        marks = {one.mark for one in known.row.constraints if one.mark}
        if not marks:
            return False
        met = {*known.row.tried, *marks}
        return any(mark_of(signature) not in met for signature in signatures)

    def probe_rank(self, key: str, fingerprint: Fingerprint) -> int:
        """Place in `PROBE_ORDER`; measured rows come after all others."""
        known = self.lookup(key, fingerprint)
        grade = known.grade if known else ""
        return PROBE_ORDER.index(grade) if grade in PROBE_ORDER else len(PROBE_ORDER)

    def merged(self, rows: Iterable[RegistryRow], fingerprints: Mapping[str, Fingerprint]) -> Registry:
        """This registry with rows laid over it; of two with one key and fingerprint the new one stays."""
        added = list(rows)
        measured = {(row.key, row.fingerprint): row for row in added if row.method != DECLARED}
        declared = {(row.key, row.fingerprint): row for row in added if row.method == DECLARED}
        return replace(
            self,
            rows={**self.rows, **measured},
            declared={**self.declared, **declared},
            fingerprints={**self.fingerprints, **fingerprints},
        )

    def overlaid(self, other: Registry) -> Registry:
        """This registry with another one laid over it."""
        return self.merged(other.all_rows(), other.fingerprints).with_unread(*other.unread)

    def with_unread(self, *sentences: str) -> Registry:
        """This registry, of which more could not be read; empty sentences do not count."""
        return replace(self, unread=(*self.unread, *filter(None, sentences)))

    def all_rows(self) -> Iterator[RegistryRow]:
        """Measured rows, then declared ones."""
        yield from self.rows.values()
        yield from self.declared.values()

    def digest_of(self, keys: Iterable[str], fingerprint: Fingerprint) -> str:
        """Changes whenever what is known of one of these rows changes."""
        known = {key: self.lookup(key, fingerprint) for key in keys}
        return digest(
            {
                key: [found.grade, found.row.model_dump(mode="json")] if found else None
                for key, found in sorted(known.items())
            }
        )

    def _listed(self, key: str) -> RegistryRow | None:
        """The declared row that says most of a key: lists often know no ranks, or no dtypes either."""
        if not self.declared:
            return None
        found = [row for wanted in _looser(key) for row in self._declared_under(wanted)]
        return found[0] if found else None

    def _declared_under(self, key: str) -> Sequence[RegistryRow]:
        rows = [row for (known, _), row in self.declared.items() if known == key]
        return sorted(rows, key=_age, reverse=True)


def _age(row: RegistryRow) -> tuple[str, str]:
    return row.date, row.fingerprint


def _looser(key: str) -> Iterator[str]:
    op, dtypes, *_ = key.split("|")
    distinct = list(dict.fromkeys(dtypes.split(",")))
    yield key
    yield f"{op}|{dtypes}|"
    yield f"{op}|{','.join(distinct)}|"
    yield f"{op}||"

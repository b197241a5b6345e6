"""What is known of kinds of nodes on a target: rows as of operators, kept in the run store and read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint, Number, Value, canonical_json, digest
from day0.adapters.registries.row_files import rows_text, salvage

FORMAT = 1


class KindRow(Value):
    """One kind of node that ran, or did not, in one case.

    Attributes:
        kind: digest of the graph, which nodes of other models may share.
        case: `prefill` or `decode`: compiled for itself; else a case of `size_cases`.
        dtype: of weights and activations.
        options: of the target.
        outcome: `ran`; `uncompiled`: it ran on a target that compiles nothing; `alike`: the case changes
            nothing of the kind; `untested`: the model's own code takes no such case; or a class of failure.
        detail: the error in one line.
        op: operator that the error names, empty where it names none.
        op_dtype: that the error names.
        shape: that the error names.
        place: node of the target's graph that the error names.
        operators: name -> number in the graph that the compiler was given.
        kernels: what is executed in their place -> how many.
        breaks: why parts run uncompiled.
        fixed: why a graph for all sizes could not be made.
        graphs: how many were compiled for this case.
        anew: whether one was compiled although another for other sizes was there.
        deviation: relative L2 error of the output against the CPU.
        reduced: how the node differs from the model's, `32 of 256 experts`; empty: in nothing.
        compile_seconds: until the first answer, without the execution.
        run_seconds: of the execution.
        config: digest of the config in which the node was met.
        date: day of the trial (UTC).
        fingerprint: digest of the fingerprint it holds for.
    """

    kind: str
    case: str
    dtype: str
    options: Mapping[str, str] = {}
    outcome: str
    detail: str = ""
    op: str = ""
    op_dtype: str = ""
    shape: str = ""
    place: str = ""
    operators: Mapping[str, int] = {}
    kernels: Mapping[str, int] = {}
    breaks: Sequence[str] = ()
    fixed: str = ""
    graphs: int = 0
    anew: bool = False
    deviation: Number | None = None
    reduced: str = ""
    compile_seconds: float = 0.0
    run_seconds: float = 0.0
    config: str = ""
    date: str = ""
    fingerprint: str = ""

    @property
    def key(self) -> str:
        """The same for rows that speak of the same thing, whatever the fingerprint."""
        return row_key(self.kind, self.case, self.dtype, self.options)


def row_key(kind: str, case: str, dtype: str, options: Mapping[str, str]) -> str:
    """What a row speaks of."""
    return "|".join([kind, case, dtype, *(f"{name}={value}" for name, value in sorted(options.items()))])


@dataclass(frozen=True)
class KindRows:
    """Rows of one `STACK@DEVICE`.

    Attributes:
        name: `STACK@DEVICE`.
        rows: (row key, fingerprint digest) -> row.
        fingerprints: digest -> fingerprint.
        unread: what the file of them could not be read, a sentence each.
    """

    name: str
    rows: Mapping[tuple[str, str], KindRow] = field(default_factory=dict)
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    unread: Sequence[str] = ()

    def merged(self, rows: Iterable[KindRow], fingerprints: Mapping[str, Fingerprint]) -> KindRows:
        """These rows with others laid over them."""
        added = {(row.key, row.fingerprint): row for row in rows}
        return replace(self, rows={**self.rows, **added}, fingerprints={**self.fingerprints, **fingerprints})

    def overlaid(self, other: KindRows) -> KindRows:
        """These rows with those of another collection laid over them."""
        return self.merged(other.rows.values(), other.fingerprints)

    def lookup(self, key: str, fingerprint: Fingerprint) -> tuple[KindRow, str] | None:
        """A row with its grade: `measured` under this very fingerprint, `inherited` from its family."""
        exact = self.rows.get((key, fingerprint.digest))
        if exact is not None:
            return exact, "measured"
        related = [
            row
            for name, other in self.fingerprints.items()
            if other.family == fingerprint.family and (row := self.rows.get((key, name))) is not None
        ]
        return (max(related, key=lambda row: (row.date, row.fingerprint)), "inherited") if related else None

    def digest_of(self, kinds: Iterable[str], dtype: str, fingerprint: Fingerprint) -> str:
        """Changes whenever what is known of one of these kinds in that dtype changes; times apart."""
        wanted = set(kinds)
        keys = {row.key for row in self.rows.values() if row.kind in wanted and row.dtype == dtype}
        known = [(key, self.lookup(key, fingerprint)) for key in sorted(keys)]
        untimed = {"compile_seconds", "run_seconds", "date"}
        told = {
            key: [found[1], found[0].model_dump(mode="json", exclude=untimed)]
            for key, found in known
            if found is not None
        }
        return digest(told)


@dataclass(frozen=True)
class KindsOn:
    """What is asked about: the kinds of one model as one target runs them.

    Attributes:
        spec: the target with all its options.
        dtype: of weights and activations.
        fingerprint: of the target.
        config: digest of the model's config.
    """

    spec: TargetSpec
    dtype: str
    fingerprint: Fingerprint
    config: str

    def known(self, rows: KindRows, kind: str, case: str) -> tuple[KindRow, str] | None:
        """The row of a kind and case, with its grade."""
        return rows.lookup(row_key(kind, case, self.dtype, self.spec.options), self.fingerprint)

    def is_due(self, rows: KindRows, kind: str, case: str) -> bool:
        """Whether it should be tried: it is unknown, inherited, or could not be asked in another model."""
        found = self.known(rows, kind, case)
        if found is None or found[1] == "inherited":
            return True
        return found[0].outcome == "untested" and found[0].config != self.config

    def rank(self, rows: KindRows, kind: str, case: str) -> int:
        """The order of what is due: what is inherited comes first."""
        return 1 if self.known(rows, kind, case) is None else 0


def store_path(name: str) -> str:
    """Where the run store keeps the rows of a `STACK@DEVICE`."""
    return f"kinds/{name}.json"


def load_kinds(store: RunStore, name: str) -> KindRows:
    """What earlier runs have learnt; empty where there were none. What cannot be read is in `unread`."""
    path = store_path(name)
    if not store.exists(path):
        return KindRows(name)
    return _read(name, store.read(path), f"the file of kinds {path} of the run store")


def add_kinds(store: RunStore, added: KindRows) -> None:
    """Lays rows over those of the run store; a reader sees the old file or the new one, never a part.

    A file that cannot be read whole is kept beside it, with `.damaged` at the end of its name.
    """
    path, there = store_path(added.name), load_kinds(store, added.name)
    if there.unread:
        store.write(f"{path}.damaged", store.read(path))
    store.write(path, dump_kinds(there.overlaid(added)).encode())


def dump_kinds(kinds: KindRows) -> str:
    """The rows as text: sorted, one a line, defaults left out, so that a change is a few lines."""
    rows = [kinds.rows[key] for key in sorted(kinds.rows)]
    lines = [canonical_json(row.model_dump(mode="json", exclude_defaults=True)) for row in rows]
    used = {row.fingerprint for row in rows}
    prints = {key: value for key, value in kinds.fingerprints.items() if key in used}
    return rows_text("kinds", kinds.name, FORMAT, lines, prints)


def parse_kinds(name: str, text: str) -> KindRows:
    """Inverse of `dump_kinds`.

    Raises:
        InputError: E138, the text holds no rows of that name and format, or not all of it does.
    """
    kinds = _read(name, text.encode(), f"the file of kinds of {name}")
    if kinds.unread:
        raise InputError(kinds.unread[0], code="E138", remedy="Delete it and run `day0 probe` again.")
    return kinds


def _read(name: str, data: bytes, where: str) -> KindRows:
    found = salvage(data, where, "kinds", name, (FORMAT,), KindRow)
    return replace(KindRows(name).merged(found.rows, found.fingerprints), unread=found.unread)

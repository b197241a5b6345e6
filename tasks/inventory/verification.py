"""The outcome of `--verify` as facts and findings of the inventory's record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from day0.adapters.base.values import from_json_number, json_number

from .. import thresholds
from ..finding import Finding, Severity, Subject, make_finding
from .pattern_lookup import PatternLookup
from .readable import plural
from .record import InventoryRecord
from .record_verification import ContentPattern, Verification, VerifiedShard
from .verify import Contents, ShardContent, TensorContent

_EXAMPLES = 5
_NOT_WEIGHTS = frozenset({"aux", "buffer"})
# Families whose norms multiply by one plus the stored weight, so that zeros are where training begins.
_NORM_ADDS_ONE = ("gemma", "qwen3_next", "qwen3_5", "recurrent_gemma")


def with_verification(record: InventoryRecord, contents: Contents) -> InventoryRecord:
    """The record with what reading every byte showed.

    Args:
        record: taken from headers.
        contents: of the canonical tensor files.
    """
    patterns = _patterns(record, contents.shards)
    shards = tuple(_shard(shard, contents) for shard in contents.shards)
    verification = Verification(
        shards=shards,
        bytes=sum(shard.size for shard in contents.shards if shard.sha256),
        tensors=_count(patterns, "full"),
        partly_checked=_count(patterns, "zeros"),
        unchecked=_stored(record) - _count(patterns, "full") - _count(patterns, "zeros"),
        nan=sum(row.nan for row in patterns),
        inf=sum(row.inf for row in patterns),
        zero_tensors=sum(row.zero_tensors for row in patterns),
        patterns=patterns,
    )
    adds_one = record.facts.architecture.model_type.startswith(_NORM_ADDS_ONE)
    found = [*_shard_findings(shards), *_number_findings(patterns, adds_one), *_left_open(verification)]
    observations = record.observations.model_copy(
        update={"verified_bytes": contents.bytes, "verify_seconds": contents.seconds}
    )
    return InventoryRecord.conclude(
        findings=[*record.findings, *found],
        facts=record.facts.model_copy(update={"verification": verification}),
        sources={**record.sources, "/verification": "measured"},
        observations=observations,
        files=record.files,
    )


def _stored(record: InventoryRecord) -> int:
    """Tensors that are there to be read; those that a bare config implies are not."""
    return record.facts.totals.tensors if record.facts.basis == "headers" else 0


def _count(patterns: Iterable[ContentPattern], checked: str) -> int:
    return sum(row.tensors for row in patterns if row.checked == checked)


def _shard(shard: ShardContent, contents: Contents) -> VerifiedShard:
    vouched, known = shard.expected, contents.known.get(shard.path)
    remembered = known.sha256 if known is not None else ""
    if shard.wrong:
        state = "differs"
    elif shard.problem:
        state = "unreadable"
    elif vouched:
        state = "matches" if shard.vouched == vouched.removeprefix("git:") else "differs"
    elif known is None:
        state = "recorded"
    elif remembered == shard.sha256:
        state = "as_before"
    else:
        state = "damaged" if known.identity == shard.identity else "changed"
    expected = vouched or remembered
    return VerifiedShard(
        path=shard.path,
        size=shard.size,
        sha256=shard.sha256,
        expected=expected,
        state=state,
        problem=shard.problem,
    )


@dataclass
class _Row:
    """What is gathered of one pattern, dtype and way of checking."""

    tensors: int = 0
    nan: int = 0
    inf: int = 0
    top: float = 0.0
    worst: str = ""
    bad: list[str] = field(default_factory=list)
    zero: list[str] = field(default_factory=list)

    def add(self, tensor: TensorContent) -> None:
        self.tensors += 1
        self.nan += tensor.nan
        self.inf += tensor.inf
        top = from_json_number(tensor.max_abs)
        if top > self.top:
            self.top, self.worst = top, tensor.name
        if tensor.nan or tensor.inf:
            self.bad.append(tensor.name)
        if tensor.zero:
            self.zero.append(tensor.name)


def _patterns(record: InventoryRecord, shards: Sequence[ShardContent]) -> Sequence[ContentPattern]:
    lookup = PatternLookup(record.facts.patterns)
    rows: dict[tuple[str, str, str, str], _Row] = {}
    for shard in shards:
        for tensor in shard.tensors:
            found, _ = lookup.find(tensor.name)
            text, role = (found.pattern, found.role) if found is not None else (tensor.name, "unknown")
            rows.setdefault((text, tensor.dtype, role, tensor.checked), _Row()).add(tensor)
    return tuple(sorted((_pattern(key, row) for key, row in rows.items()), key=_worst_first))


def _worst_first(row: ContentPattern) -> tuple[bool, bool, float, str, str, str, str]:
    bad, top = row.nan + row.inf > 0, from_json_number(row.max_abs)
    return not bad, not row.zero_tensors, -top, row.pattern, row.dtype, row.role, row.checked


def _pattern(key: tuple[str, str, str, str], row: _Row) -> ContentPattern:
    text, dtype, role, checked = key
    return ContentPattern(
        pattern=text,
        dtype=dtype,
        role=role,
        tensors=row.tensors,
        nan=row.nan,
        inf=row.inf,
        bad_tensors=len(row.bad),
        zero_tensors=len(row.zero),
        max_abs=json_number(row.top),
        worst=row.worst,
        examples=tuple(sorted(row.bad or row.zero)[:_EXAMPLES]),
        checked=checked,
    )


def _shard_findings(shards: Iterable[VerifiedShard]) -> Iterator[Finding]:
    for shard in shards:
        subject = Subject(kind="file", name=shard.path)
        if shard.state == "differs":
            got = f"has the hash {shard.sha256}" if shard.sha256 else "came twice with another hash"
            message = f"{shard.path} ({shard.size:,} bytes) {got}, the source gives {shard.expected}"
            yield make_finding("INV080", subject, message, evidence=[shard.path])
        elif shard.state in ("changed", "damaged"):
            how = (
                "its size, inode and time of change are the same as then"
                if shard.state == "damaged"
                else "its size, inode or time of change is another than then, too"
            )
            message = (
                f"{shard.path} ({shard.size:,} bytes) has the hash {shard.sha256} and had {shard.expected} "
                f"when it was last verified; {how}"
            )
            severity: Severity | None = "error" if shard.state == "damaged" else None
            yield make_finding("INV081", subject, message, evidence=[shard.path], severity=severity)
        elif shard.state == "unreadable":
            yield make_finding("INV086", subject, shard.problem, evidence=[shard.path])
    recorded = [shard for shard in shards if shard.state == "recorded"]
    if recorded:
        message = (
            f"the source gives no hash for {plural(len(recorded), 'tensor file')}; what was computed now is "
            "remembered in the run store, and the next verification is held against it"
        )
        evidence = [shard.path for shard in recorded[:_EXAMPLES]]
        yield make_finding("INV087", Subject(kind="model", name="weights"), message, evidence=evidence)


def _number_findings(patterns: Iterable[ContentPattern], norm_adds_one: bool) -> Iterator[Finding]:
    for row in patterns:
        where = f"{row.pattern} ({row.dtype}, {row.role})"
        subject = Subject(kind="tensor", name=row.examples[0] if row.examples else row.worst or row.pattern)
        if row.nan or row.inf:
            message = (
                f"{row.bad_tensors:,} of {plural(row.tensors, 'tensor')} {where} "
                f"{'holds' if row.bad_tensors == 1 else 'hold'} {row.nan:,} NaN and "
                f"{plural(row.inf, 'infinite element')}"
            )
            # A mask is built of minus infinity.
            severity: Severity | None = "warning" if row.role == "buffer" else None
            yield make_finding("INV082", subject, message, evidence=row.examples, severity=severity)
        if row.zero_tensors and _must_not_vanish(row, norm_adds_one):
            message = (
                f"{row.zero_tensors:,} of {plural(row.tensors, 'tensor')} {where} "
                f"{'is' if row.zero_tensors == 1 else 'are'} zero throughout"
            )
            yield make_finding("INV083", subject, message, evidence=row.examples)
        limit, top = thresholds.INVENTORY_MAX_WEIGHT, from_json_number(row.max_abs)
        if top > limit and row.role not in _NOT_WEIGHTS and row.dtype in ("bf16", "fp16", "fp32", "fp64"):
            message = (
                f"the largest element of {where} is {top:g}, in {row.worst}; no more than {limit:g} is usual"
            )
            subject = Subject(kind="tensor", name=row.worst)
            yield make_finding("INV084", subject, message, evidence=[row.worst])


def _must_not_vanish(row: ContentPattern, norm_adds_one: bool) -> bool:
    """A weight or scale whose zeros switch something off; biases and zero points may be zero."""
    name = row.pattern.rpartition(".")[2].lower()
    if row.role == "aux":
        return "scale" in name
    if row.role in _NOT_WEIGHTS or "bias" in name or name in ("sinks", "dt", "a_log", "d"):
        return False
    return not (row.role == "norm" and norm_adds_one)


def _left_open(verification: Verification) -> Iterator[Finding]:
    if not verification.unchecked and not verification.partly_checked:
        return
    formats = sorted({row.dtype for row in verification.patterns if row.checked != "full"})
    message = (
        f"the numbers of {plural(verification.unchecked, 'tensor')} were not looked at, and of "
        f"{verification.partly_checked:,} more only whether all are zero"
        + (f" (stored as {', '.join(formats)})" if formats else "")
    )
    yield make_finding("INV085", Subject(kind="model", name="weights"), message)

"""What earlier runs left in the run store of the very files that lie here now.

A record read in full serves where the same files cannot be read any more, as offline; what `--verify` found
in their bytes is no less true because nobody asks for it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Value, digest

from ..finding import Finding
from ..job import StageJob
from ..record_store import load_record
from .record import STAGE, STAGE_VERSION, InventoryRecord
from .record_verification import Verification

_VERSION = 1  # of what is kept of a verification
_CODES = frozenset(f"INV{number:03}" for number in range(80, 88))  # of findings on bytes
_OF_THAT_RUN = ("INV086", "INV087")  # unreadable then, or remembered then: no word on the bytes
_SAID = "; an earlier --verify found this in the same files"
_UNREAD = ("listing_only", "shard_unreadable")


class Verified(Value):
    """A verification, kept under the identities of the files that it read."""

    verification: Verification
    findings: Sequence[Finding] = ()


class _Whole(Value):
    """The key of a record that was read in full."""

    key: str


def is_withheld(release: Release) -> bool:
    """Whether some of the weights are listed and cannot be read now."""
    return any(anomaly.code in _UNREAD for anomaly in release.checkpoint.anomalies)


def find_whole(job: StageJob, release: Release) -> InventoryRecord | None:
    """The record that an earlier run with these options took of the same files, all of them read."""
    store, name = job.run_store, _whole_name(job, release)
    if not store.exists(name):
        return None
    try:
        kept = _Whole.model_validate_json(store.read(name))
    except ValidationError:
        return None
    return load_record(store, InventoryRecord, STAGE, kept.key)


def keep_whole(job: StageJob, release: Release, key: str) -> None:
    """Remembers which record is that of these files."""
    data = _Whole(key=key).model_dump_json().encode()
    store, name = job.run_store, _whole_name(job, release)
    if not store.exists(name) or store.read(name) != data:
        store.write(name, data)


def find_verified(store: RunStore, release: Release) -> Verified | None:
    """What the last verification found, where every tensor file has the identity that it had then."""
    name = _verified_name(release)
    if not name or not store.exists(name):
        return None
    try:
        return Verified.model_validate_json(store.read(name))
    except ValidationError:  # of an earlier version: the bytes have to be read again
        return None


def keep_verified(store: RunStore, release: Release, record: InventoryRecord) -> None:
    """Keeps what the verification in a record of the release found."""
    name, found = _verified_name(release), record.facts.verification
    if name and found is not None:
        told = [finding for finding in record.findings if finding.code in _CODES]
        store.write(name, Verified(verification=found, findings=told).model_dump_json().encode())


def with_verified(record: InventoryRecord, kept: Verified) -> InventoryRecord:
    """The record with what an earlier verification of the same files found."""
    found = [
        finding.model_copy(update={"message": f"{finding.message}{_SAID}"})
        for finding in kept.findings
        if finding.code not in _OF_THAT_RUN
    ]
    verification = kept.verification.model_copy(update={"earlier": True})
    return InventoryRecord.conclude(
        findings=[*record.findings, *found],
        facts=record.facts.model_copy(update={"verification": verification}),
        sources={**record.sources, "/verification": "measured"},
        observations=record.observations,
        files=record.files,
    )


def _whole_name(job: StageJob, release: Release) -> str:
    """Under all that a record depends on and that can be known without the weights' headers."""
    files = release.source.files() if release.source else ()
    options = [job.options.expected, list(job.options.layouts)]
    held = [[file.path, file.size, file.identity] for file in files]
    return f"whole/{digest([STAGE_VERSION, job.model, release.revision, held, options])}.json"


def _verified_name(release: Release) -> str:
    """Under the identities of the tensor files; empty where there are none."""
    source, weights = release.source, set(release.checkpoint.shards)
    held = (
        [[file.path, file.size, file.identity] for file in source.files() if file.path in weights]
        if source
        else []
    )
    return f"verify/{digest([_VERSION, source.name, held])}.json" if source and held else ""

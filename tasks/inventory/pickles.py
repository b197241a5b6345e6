"""Pickles of the release: what loading each would import, as listed without loading it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from day0.adapters.checkpoints.naming import PICKLED_SUFFIXES
from day0.adapters.checkpoints.strict_json import shorten

from ..finding import Finding, Severity, Subject, make_finding
from .record_trust import PickleFile
from .seen import Part, Seen

if TYPE_CHECKING:
    from day0.adapters.checkpoints.pickle_listing import PickleListing

_NO_WEIGHTS = re.compile(
    r"(^|/)(training_args|optimizer|scheduler|rng_state|random_states|scaler|global_step)[^/]*$",
    re.IGNORECASE,
)


def read_pickles(seen: Seen) -> Part:
    """The part of the inventory that is about pickles; none of them is loaded."""
    source = seen.release.source
    withheld = any(anomaly.code == "listing_only" for anomaly in seen.release.checkpoint.anomalies)
    if source is None or withheld or not any(item.path.endswith(PICKLED_SUFFIXES) for item in source.files()):
        return Part()
    # The table of opcodes takes as long to load as 10,000 tensors; most releases have no pickle.
    from day0.adapters.checkpoints.pickle_listing import list_pickles

    listings = [item for item in list_pickles(source) if item.container or item.error]
    if not listings:
        return Part()
    alone = seen.release.checkpoint.format in ("pickle", "none")
    files = tuple(_file(listing, alone) for listing in listings)
    findings = [*_asking(listings, files), *_unlisted(files)]
    return Part({"pickles": files}, findings, {"/pickles": "computed:opcodes of the pickles, by ranges"})


def _file(listing: PickleListing, alone: bool) -> PickleFile:
    if listing.foreign or listing.code:
        verdict = "asks for code"
    else:
        verdict = "not listed" if listing.error else "plain weights"
    return PickleFile(
        path=listing.path,
        size=listing.size,
        container=listing.container,
        protocol=listing.protocol,
        opcodes=listing.opcodes,
        globals=tuple(_printable(name) for name in listing.globals),
        foreign=tuple(_printable(name) for name in listing.foreign),
        verdict=verdict,
        status="convert first" if alone else "not needed",
        error=listing.error,
    )


def _asking(listings: Sequence[PickleListing], files: Sequence[PickleFile]) -> Iterable[Finding]:
    """One finding for each set of foreign names: the shards of one set ask for the same."""
    groups: dict[tuple[tuple[str, ...], bool, bool], list[PickleListing]] = {}
    for listing, file in zip(listings, files, strict=True):
        if file.verdict == "asks for code":
            weights = not _NO_WEIGHTS.search(listing.path)
            groups.setdefault((tuple(listing.foreign), listing.code, weights), []).append(listing)
    for (foreign, code, weights), found in groups.items():
        first = found[0]
        named = ", ".join(shorten(name) for name in foreign[:5]) or "TorchScript code"
        others = f" and {len(found) - 1} more" if len(found) > 1 else ""
        message = f"loading {shorten(first.path)[1:-1]}{others} imports {named}"
        severity: Severity | None = "error" if first.commands else None if weights else "info"
        if code and foreign:
            message += "; it carries TorchScript code"
        evidence = [f"opcodes of {item.path}" for item in found[:20]]
        yield make_finding(
            "INV076", Subject(kind="file", name=first.path), message, evidence=evidence, severity=severity
        )


def _unlisted(files: Sequence[PickleFile]) -> Iterable[Finding]:
    groups: dict[str, list[PickleFile]] = {}
    for file in files:
        if file.error:
            groups.setdefault(file.error, []).append(file)
    for error, found in groups.items():
        others = f" and {len(found) - 1} more" if len(found) > 1 else ""
        message = f"{shorten(found[0].path)[1:-1]}{others} {error}; it was listed as far as that goes"
        yield make_finding(
            "INV077",
            Subject(kind="file", name=found[0].path),
            message,
            evidence=[item.path for item in found[:20]],
        )


def _printable(name: str) -> str:
    """A stranger's name that every record can carry."""
    return name.encode("ascii", "backslashreplace").decode()

"""The start of a run: one pinned revision for everything, targets that exist, an id."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

from day0.adapters.base.errors import AccessError
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import digest
from day0.tasks.job import RunOptions, StageJob


def new_run_id(model: str, targets: Sequence[str]) -> str:
    """UTC time and a short digest: sorts by time, and two runs of one second differ."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}-{digest([model, list(targets), os.getpid(), time.time_ns()])[:8]}"


def pin_model(model: str, revision: str | None, *, listing: bool = False) -> tuple[str, str | None]:
    """The model's name without a revision, and the commit that all stages will read.

    A folder or a bare config has no commit; its stages see its files' identities. Whether there is a config
    that can be read is found out here, before anything heavy starts.

    Args:
        model: as a person named it.
        revision: commit, tag or branch.
        listing: whether a release that is listed is enough even where its files are withheld, or weights
            without a config.

    Raises:
        InputError: the model as named cannot be used.
    """
    from day0.adapters.checkpoints.release import has_config, has_weights, named_file, read_config
    from day0.adapters.sources.resolve import open_source, split_revision

    name, named = split_revision(model, revision)
    if named_file(name, named) is not None:
        return name, None
    source = open_source(name, named)
    if not (listing and not has_config(source) and has_weights(source)):
        with suppress(AccessError) if listing else nullcontext():
            read_config(source)
    return name, None if Path(name).is_dir() else source.revision


def check_targets(targets: Sequence[str]) -> None:
    """Refuses what no worker has to be started for.

    Raises:
        InputError: E110, it does not follow the grammar; E111, an unknown stack; E188, an option
            that it does not know.
    """
    for target in targets:
        from day0.adapters.targets.registry import stack_of  # a run without targets needs none of it

        stack_of(TargetSpec.parse(target))


def start_job(
    model: str,
    revision: str | None,
    targets: Sequence[str],
    store: str,
    options: RunOptions,
    *,
    listing: bool = False,
) -> StageJob:
    """The job of a new run, before any target is asked.

    Args:
        model: as a person named it.
        revision: commit, tag or branch.
        targets: their texts.
        store: root of the run store.
        options: settings of the run.
        listing: see `pin_model`.

    Raises:
        InputError: the model as named cannot be used, or a target is unknown.
    """
    check_targets(targets)
    name, commit = pin_model(model, revision, listing=listing)
    return StageJob(run=new_run_id(name, targets), store=store, model=name, revision=commit, options=options)

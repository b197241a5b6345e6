"""The part of a probe that is about kinds of nodes: what coverage would compile is compiled before."""

from __future__ import annotations

from functools import partial

from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton_store import load_or_build_skeleton
from day0.adapters.targets.kept_description import described
from day0.adapters.targets.open import open_target

from ..job import RunOptions
from .compiled import try_kinds
from .kind_facts import is_known
from .kind_rows import KindsOn, add_kinds, load_kinds
from .needs import GRAPH_STACKS


def probe_kinds(
    model: str,
    revision: str | None,
    spec: TargetSpec,
    store: RunStore,
    options: RunOptions,
    *,
    seconds: float,
    progress: Progress = silent,
) -> int:
    """Compiles and runs what nobody has of a model's kinds on a target that compiles; keeps what is learnt.

    Args:
        model: whose kinds.
        revision: of the model.
        spec: the target.
        store: holds the rows.
        options: of the run.
        seconds: in all; a node that has begun is waited for.
        progress: told of each node.

    Returns:
        Rows that are new; 0 where everything is known, no time is left, or the target compiles nothing.

    Raises:
        Day0Error: the model cannot be built, or the target does not start.
    """
    if spec.stack not in GRAPH_STACKS or seconds <= 0:
        return 0
    opened = partial(
        open_target,
        timeout=options.node_timeout,
        memory_limit=options.memory_limit,
        command=options.worker_command,
    )

    def ask() -> TargetDescription:
        with opened(spec) as target:
            return target.describe()

    description = described(spec, store, ask, command=options.worker_command)
    if "fragment" not in description.capabilities:
        return 0
    release = open_release(model, revision)
    skeleton = load_or_build_skeleton(release, store)
    dtype = spec.dtype or skeleton.dtype
    on = KindsOn(spec, dtype, description.fingerprint, release.config_digest)
    known = load_kinds(store, spec.registry_name)
    if is_known(on, known, skeleton):
        return 0
    rows, _ = try_kinds(
        skeleton,
        on,
        known,
        open_target=opened,
        seconds=seconds,
        memory=options.memory_limit,
        keep=partial(add_kinds, store),
        progress=progress,
    )
    return len(rows.rows) - len(known.rows)

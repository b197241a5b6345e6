"""The coverage stage: what the model calls against what is known of the target and what a probe can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target import Target, TargetDescription
from day0.adapters.base.values import digest
from day0.adapters.registries.registry import Registry

from .findings import findings_of
from .kernels import kernels_of
from .needs import Need, needs_of
from .prober import Keep, Prober
from .record import CoverageFacts, CoverageObservations, CoverageRecord
from .statuses import covered_ops, gaps_of, states_of

SOURCES: Mapping[str, str] = {
    "/fingerprint": "measured: the target describes itself",
    "/config_digest": "computed: digest of config.json",
    "/overloads": "computed: operators captured on the meta device from config.json",
    "/signatures": "computed: operators captured on the meta device from config.json",
    "/statuses": "measured: replay of the captured calls, registry rows",
    "/ops": "measured: replay of the captured calls; impact computed from bytes and operations",
    "/gaps": "measured: replay of the captured calls; impact computed from bytes and operations",
    "/new_since_registry": "computed: captured operators without a registry row",
    "/kernels": "config.json#/quantization_config",
}


def measure_coverage(
    skeleton: Skeleton,
    target: Target,
    description: TargetDescription,
    registry: Registry,
    *,
    budget: float,
    progress: Progress = silent,
    keep: Keep | None = None,
    config: Mapping[str, Any] | None = None,
) -> CoverageRecord:
    """Says of every operator that the model calls what the target makes of it.

    Rows that the registry knows under the target's fingerprint family stand; the others are tried, the one
    with the largest share of the model's work first, until the budget is spent. What then remains is unknown,
    which makes the stage unverified.

    Args:
        skeleton: with the captured calls.
        target: what the model must run on; only asked where something is unknown.
        description: of the target.
        registry: what is known of `STACK@DEVICE`.
        budget: seconds for probing.
        progress: told of each row tried.
        keep: receives new rows as they come.
        config: config.json as parsed, for kernels outside the dispatcher.
    """
    fingerprint = description.fingerprint
    needs = needs_of(skeleton, target.spec)
    unknown = [need for need in needs if registry.lookup(need.key, fingerprint) is None]
    can_probe = "op" in description.capabilities
    new = _new(unknown, registry)
    observations = CoverageObservations()
    if can_probe and budget > 0 and unknown:
        prober = Prober(target, fingerprint, registry, budget=budget, keep=keep, progress=progress)
        prober.run(unknown)
        registry = prober.registry
        observations = CoverageObservations(probe_seconds=prober.seconds, probed=prober.probed)
    ops = covered_ops(states_of(needs, registry, fingerprint), registry, fingerprint)
    kernels = kernels_of(config or {})
    facts = CoverageFacts(
        fingerprint=fingerprint,
        config_digest=digest(dict(config)) if config is not None else digest(dict(skeleton.config)),
        overloads=len({call.op for need in needs for call in need.calls}),
        signatures=len({call.signature for need in needs for call in need.calls}),
        statuses=dict(sorted(Counter(entry.status for entry in ops).items())),
        ops=ops,
        gaps=gaps_of(ops),
        new_since_registry=new,
        kernels=kernels,
    )
    return CoverageRecord.conclude(
        findings=findings_of(target, skeleton, ops, kernels, can_probe=can_probe),
        target=str(target.spec),
        facts=facts,
        observations=observations,
        sources=SOURCES,
    )


def _new(unknown: Sequence[Need], registry: Registry) -> tuple[str, ...]:
    """Operators of which the registry has no row at all, under whatever fingerprint."""
    known = {row.op for row in registry.rows.values()}
    return tuple(sorted({need.example.op for need in unknown} - known))

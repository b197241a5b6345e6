"""Which layouts are looked at on a chip, and which of those that work is the best."""

from __future__ import annotations

from collections.abc import Iterable

from .record import Config
from .sharding import Layout

DEVICE_COUNTS = (1, 2, 4, 8, 16, 32)


def candidates(devices_per_node: int, layers: int, experts: int) -> list[Layout]:
    """Tensor parallelism over all devices, and within nodes with pipeline stages across them.

    Both also with whole experts on each rank, where there are experts.
    """
    found = []
    for devices in DEVICE_COUNTS:
        shapes = [(devices, 1)]
        stages = devices // devices_per_node
        if 1 < stages <= layers:
            shapes.append((devices_per_node, stages))
        for tensor, pipeline in shapes:
            found.append(Layout(tensor, pipeline))
            if experts and tensor > 1:
                found.append(Layout(tensor, pipeline, tensor))
    return found


def best(configs: Iterable[Config]) -> Config | None:
    """The fewest devices on which it fits, else the fewest on which it does tightly.

    Among equals first the one whose tensor parallelism stays inside a node (no note says otherwise), then the
    one that holds more tokens, then the plainer one.
    """
    working = [config for config in configs if config.fits in ("fits", "tight")]
    return min(working, key=_preference, default=None)


def _preference(config: Config) -> tuple[bool, int, bool, int, int, int]:
    return (
        config.fits != "fits",
        config.devices,
        any("crosses nodes" in note for note in config.notes),
        -config.concurrency * config.max_context,
        config.expert_parallel,
        config.pipeline_parallel,
    )


def short_name(layout: Layout) -> str:
    """E.g. `TP8`, `TP8xPP2`, `TP8+EP`."""
    text = f"TP{layout.tensor}"
    if layout.pipeline > 1:
        text += f"xPP{layout.pipeline}"
    return text + ("+EP" if layout.expert > 1 else "")

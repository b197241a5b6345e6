"""Command lines to copy, out of the templates of each engine; every name in them is quoted for the shell."""

from __future__ import annotations

import re
import shlex
from functools import cache
from importlib.resources import files
from math import floor

from jinja2 import DictLoader, Environment, StrictUndefined

from ..inventory.record import Identity
from ..thresholds import PLAN_BATCHED_TOKENS, PLAN_UTILISATION
from .chips import Profile
from .sharding import Layout

_TEMPLATES = {"vllm": "vllm_serve.sh.j2", "sglang": "sglang_launch.sh.j2"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def engine_commands(
    identity: Identity, profile: Profile, layout: Layout, context: int, reserve: int
) -> dict[str, str]:
    """Engine -> command line that runs the layout on the chip.

    Args:
        identity: names the model and, for a hub model, its commit.
        profile: of the chip.
        layout: degrees.
        context: tokens that a sequence may have.
        reserve: bytes held back per device, which SGLang wants as a share.
    """
    nodes = -(-layout.devices // profile.devices_per_node)
    fraction = floor((PLAN_UTILISATION - reserve / profile.memory_bytes) * 100) / 100
    values = {
        "model": identity.model,
        "revision": identity.revision if _COMMIT.fullmatch(identity.revision) else "",
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "expert": layout.expert,
        "nodes": nodes,
        "context": context,
        "batched": PLAN_BATCHED_TOKENS,
        "utilisation": PLAN_UTILISATION,
        "fraction": fraction,
    }
    found = {"vllm": _render("vllm", values)}
    if "sglang" in profile.engines and nodes == 1 and layout.pipeline == 1 and fraction > 0:
        found["sglang"] = _render("sglang", values)
    return found


def _render(engine: str, values: dict[str, object]) -> str:
    return _environment().get_template(_TEMPLATES[engine]).render(values).strip()


@cache
def _environment() -> Environment:
    folder = files("day0.templates")
    sources = {name: (folder / name).read_text(encoding="utf-8") for name in _TEMPLATES.values()}
    # A shell line, not a page: what needs escaping goes through `quote`.
    environment = Environment(loader=DictLoader(sources), undefined=StrictUndefined, autoescape=False)
    environment.filters["quote"] = shlex.quote
    return environment

"""Findings of the plan stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "PLN001", "nothing to plan with", "warning",
        "The inventory has no tensor bytes or no layers: a bare config, weights only as pickle, or headers "
        "that cannot be read. No configuration was computed.",
        "Plan again once the weights are there as safetensors.",
        undecided="unverified",
    ),
    Entry(
        "PLN002", "no chip holds the model", "warning",
        "On none of the chip profiles does any layout of up to 32 devices hold the weights and one short "
        "sequence.",
        "Use more devices or smaller weights (fp8, int4), or add a profile for the chip at hand.",
    ),
    Entry(
        "PLN003", "fits only tightly", "info",
        "The best layout on this chip holds less than one sequence of the model's full length once loading "
        "takes its usual share more than the files have.",
        "Shorten the context, use an fp8 KV cache, or take the next larger configuration.",
    ),
    Entry(
        "PLN004", "no layout works on this chip", "info",
        "Every layout of up to 32 devices either breaks a rule of the engines or does not hold the weights "
        "and one short sequence.",
        "See the rejected configurations for the arithmetic of each.",
    ),
    Entry(
        "PLN005", "layouts that break a rule of the engines", "info",
        "These degrees of parallelism cannot be served: the engine refuses them at load or fails at the "
        "first request.",
        "Take a degree that divides: half of it, pipeline stages across nodes, or expert parallelism.",
    ),
    Entry(
        "PLN006", "unknown tensors counted on every device", "info",
        "Some tensors have no known role, so the plan assumes that every device keeps them whole.",
        "Nothing, if they are small; else check how the engine splits them.",
    ),
    Entry(
        "PLN007", "counts unknown", "warning",
        "The weights are there, but the config gives no usable number of layers or attention heads. Rules "
        "and cache were computed without it, so that the layouts may fail where the plan says they work.",
        "Correct the config and plan again.",
        undecided="unverified",
    ),
    Entry(
        "PLN008", "planned from a config alone", "info",
        "No weights are there: sizes are those of the tensors that the config implies, in the precision that "
        "it declares.",
        "Plan again when the weights are released.",
    ),
)  # fmt: skip

"""Findings of the inventory stage about quantisation: what is declared, stored, and left out."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "INV050", "side tensor missing", "error",
        "A quantised weight lacks a tensor beside its scale that its format needs, such as a second-level "
        "scale, zero points or the order of its columns.",
        "Fetch the missing tensors; with some loaders the weight is wrong without them, others refuse.",
    ),
    Entry(
        "INV051", "scale of wrong shape", "error",
        "A scale has a shape that does not belong to its weight, given the declared block or group.",
        "Compare with the publisher's files; a loader either refuses or scales the wrong elements.",
    ),
    Entry(
        "INV052", "exclusion matches nothing", "info",
        "The config leaves out modules that no weight belongs to, read as the engine of its dialect reads "
        "it. A different prefix of the module names is the usual reason.",
        "Check that your stack maps the names; otherwise it quantises, or expects quantised, what is plain.",
    ),
    Entry(
        "INV053", "declarations differ", "warning",
        "Two files or sections of the release declare different quantisations.",
        "Find out which one your stack reads; state the choice when you launch it.",
    ),
    Entry(
        "INV054", "excluded but quantised", "error",
        "A module that the config leaves in high precision is stored in low precision.",
        "Correct the exclusion list; a loader that follows it takes the packed bytes for weights or refuses.",
    ),
    Entry(
        "INV055", "targeted but plain", "info",
        "A matrix that the config does not leave out is stored in plain precision.",
        "Check that your stack decides by the tensors; one that follows the config looks for scales here.",
    ),
    Entry(
        "INV056", "KV cache without scales", "warning",
        "A quantised KV cache is declared and no scales for it are stored, or the other way round.",
        "Compare quality with a bf16 cache before you serve; with a scale of 1.0 large values are clipped.",
    ),
    Entry(
        "INV057", "exclusion not evaluated", "warning",
        "A pattern of the exclusion list is no pattern, or one that may take forever. It was not evaluated.",
        "Read the pattern; replace it by one without nested repeats or references.",
        undecided="unverified",
    ),
    Entry(
        "INV058", "packed count uncertain", "warning",
        "Neither shapes nor config say how many bits a packed weight has, or its elements hold no whole "
        "number of weights.",
        "Ask the publisher; the logical count of these tensors follows the assumption that is named.",
        undecided="unverified",
    ),
    Entry(
        "INV059", "activation scale missing", "warning",
        "Static scales of the activations are declared and some weights have none beside them.",
        "Fetch them, or run with dynamic scales; a stack may take 1.0 for them silently.",
    ),
)  # fmt: skip

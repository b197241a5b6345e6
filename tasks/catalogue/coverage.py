"""Findings of the coverage stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        code="COV001",
        title="Operator missing",
        severity="error",
        meaning=(
            "The target has no kernel for an operator that the model's forward calls, and no "
            "decomposition into operators that it has is known."
        ),
        remedy=(
            "Take the way around that the finding names, or ask the owner of the layer at fault "
            "for the kernel."
        ),
    ),
    Entry(
        code="COV002",
        title="Dtype gap",
        severity="error",
        meaning="The target has the operator, but not for the dtypes with which the model calls it.",
        remedy=(
            "Cast around the operator to a dtype for which it is native, or run the model in another dtype."
        ),
    ),
    Entry(
        code="COV003",
        title="Operator gives wrong values",
        severity="error",
        meaning=(
            "The operator runs, but its output is further from the fp64 reference than its dtype "
            "explains, or has another shape or dtype."
        ),
        remedy=(
            "Do not trust results of this target until its owner has fixed the kernel; avoid it meanwhile."
        ),
    ),
    Entry(
        code="COV004",
        title="Operator crashes",
        severity="error",
        meaning="The process died while it ran the operator alone on valid inputs.",
        remedy="Send the evidence to the owner of the kernel and avoid the operator meanwhile.",
    ),
    Entry(
        code="COV005",
        title="Operator hangs",
        severity="error",
        meaning="The operator alone did not come back within the time limit and its process was killed.",
        remedy="Send the evidence to the owner of the kernel and avoid the operator meanwhile.",
    ),
    Entry(
        code="COV006",
        title="Operators nobody has tried",
        severity="warning",
        meaning=(
            "For these operators the registry has no row under the target's fingerprint family "
            "and no probe could decide within the budget; they do not count as supported."
        ),
        remedy="Run `day0 probe MODEL --target TARGET`, or give a larger --probe-budget.",
        undecided="unverified",
    ),
    Entry(
        code="COV007",
        title="Operators rebuilt from others",
        severity="info",
        meaning=(
            "The target lacks these operators, and torch's own decomposition of each consists of "
            "operators that it has."
        ),
        remedy="Nothing, if the stack applies the decomposition by itself; else register it.",
    ),
    Entry(
        code="COV008",
        title="Phase not captured",
        severity="warning",
        meaning=(
            "The operators of one phase could not be listed, so that nothing is known of what it needs."
        ),
        remedy="Read the reason; the minimal run shows whether the phase executes all the same.",
        undecided="unverified",
    ),
    Entry(
        code="COV009",
        title="Target runs no single operators",
        severity="warning",
        meaning=(
            "The stack does not claim the capability to run one operator alone, so none could be tried."
        ),
        remedy="Rely on the minimal run, or have the stack implement run_op.",
        undecided="unverified",
    ),
    Entry(
        code="COV010",
        title="Operator missing for sampling on the device",
        severity="warning",
        meaning=(
            "An operator that only sampling needs is not usable on the target; a forward does not need it."
        ),
        remedy="Sample on the host, or decode greedily, which needs argmax alone.",
    ),
    Entry(
        code="COV011",
        title="Kernels outside the dispatcher",
        severity="warning",
        meaning=(
            "The release's config asks for kernels that torch's dispatcher does not show, such as"
            " those of its quantisation; they were not tried."
        ),
        remedy=(
            "Check that the kernel is built for this target; Day0's other stages run dequantised weights."
        ),
    ),
    Entry(
        code="COV012",
        title="Operators known from a related version",
        severity="info",
        meaning="These rows were measured under another exact version of the same fingerprint family.",
        remedy="Run `day0 probe` to measure them here.",
    ),
)

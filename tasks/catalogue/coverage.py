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
        severity="warning",
        meaning=(
            "The target lacks these operators, and torch's own decomposition of each consists of "
            "operators that it has."
        ),
        remedy=(
            "Run with the way around that is named (`chosen` in the record; later stages do), or have the "
            "stack register the operator or its decomposition."
        ),
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
            "The model's code or its quantisation asks for kernels that torch's dispatcher does not "
            "show; they were not tried. Information only where the model runs other code without them."
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
    Entry(
        code="COV013",
        title="Operators cannot be listed",
        severity="error",
        meaning=(
            "No model can be built from the config on this machine, so that its operators are not known; "
            "what config and headers say by themselves is still reported."
        ),
        remedy="Follow the message: a newer transformers, a corrected config, or code that was reviewed.",
        undecided="blocked",
    ),
    Entry(
        code="COV014",
        title="Operator falls back to the host",
        severity="warning",
        meaning=(
            "The target has no kernel and runs the operator on the host: its arguments and results cross "
            "between device and host with every call."
        ),
        remedy="Weigh the bytes that cross per call against the step time, or take the way around.",
    ),
    Entry(
        code="COV015",
        title="Double fault",
        severity="error",
        meaning=(
            "The target falls back to the host for an operator that the host does not have either, so that "
            "it fails only when it is called."
        ),
        remedy="Take the way around that the finding names.",
    ),
    Entry(
        code="COV016",
        title="Operator is slow",
        severity="warning",
        meaning="The operator gives right values and takes far longer than the bytes it moves explain.",
        remedy="Have its owner look at it if it stands for a large share of the work.",
    ),
    Entry(
        code="COV017",
        title="A way around does not work",
        severity="warning",
        meaning="The smallest way around a gap was tried on the target and failed there.",
        remedy="Read the evidence; the gap stands as it is.",
    ),
    Entry(
        code="COV019",
        title="Kind of node does not run",
        severity="error",
        meaning=(
            "One node of a kind, with random weights, does not get through the target's compiler, does not "
            "run there, or gives other values than the CPU in the same dtype."
        ),
        remedy="Look at the operator that the finding names, or give its evidence to the stack's owner.",
    ),
    Entry(
        code="COV020",
        title="Sizes that vary cost compilations",
        severity="info",
        meaning=(
            "The target compiles a kind of node anew for other lengths or batches, runs parts of it "
            "uncompiled, or fails on some sizes."
        ),
        remedy="Pad to a few sizes when you serve, and warm them up; failed sizes have to be avoided.",
    ),
    Entry(
        code="COV018",
        title="Gap in low precision",
        severity="warning",
        meaning=(
            "The checkpoint holds its weights in a low precision for whose operators the target has no "
            "kernel, or none that was tried; dequantised weights take more memory."
        ),
        remedy="Plan with dequantised weights, or ask the owner of the stack for the operators.",
    ),
    Entry(
        code="COV022",
        title="Ways around that nobody has tried",
        severity="warning",
        meaning=(
            "For these gaps there is a way around that may work, and the time was up before it was replayed "
            "on the target; so nobody knows whether the model runs."
        ),
        remedy="Run again, which goes on, or give a larger --probe-budget.",
        undecided="unverified",
    ),
    Entry(
        code="COV024",
        title="A way around that is named does not work",
        severity="error",
        meaning="The target is named with a way around (`?with=`), and replayed with it operators are wrong.",
        remedy="Leave it out of the target, or have its package mended; the evidence says what came of it.",
    ),
    Entry(
        code="COV025",
        title="Kinds of nodes that were not compiled",
        severity="warning",
        meaning=(
            "The target compiles whole nodes, and the time was up before one of each kind had been compiled; "
            "that single operators run does not prove that nodes do."
        ),
        remedy="Run again, which goes on, or give a larger --probe-budget.",
        undecided="unverified",
    ),
    Entry(
        code="COV021",
        title="Operators captured otherwise than by the usual calls",
        severity="info",
        meaning=(
            "A phase of the model runs only where it is called in another way, on a shorter prompt or in "
            "another dtype, or no decode step goes on from a cache; the list is that of what was run. Or "
            "config.json holds what no model can mean: NaN, or a quantisation unknown to transformers."
        ),
        remedy="Read the remark; where decoding without a cache surprises you, the config may be the reason.",
    ),
    Entry(
        code="COV023",
        title="Rows or a way around cannot be used",
        severity="warning",
        meaning=(
            "A registry file, notes, or an installed package's rows or ways around are damaged or raise; "
            "they were passed over, and everything else is answered without them."
        ),
        remedy=(
            "Correct or uninstall the package. A damaged file of the run store is replaced by what is learnt "
            "next and kept beside it as `.damaged`."
        ),
    ),
)

"""Findings of the minimal stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        code="MIN001",
        title="Operator missing at a node",
        severity="error",
        meaning="The target has no kernel, or no conversion, for an operator that the node calls with the "
        "real weights.",
        remedy="See the operator's row in the coverage section for a way around, or ask the owner of the "
        "stack for it.",
    ),
    Entry(
        code="MIN002",
        title="Dtype refused at a node",
        severity="error",
        meaning="The target has the operator, but not for the dtypes that the node gives it.",
        remedy="Run the target in a dtype that it supports, for instance with /fp32, or cast around the "
        "operator.",
    ),
    Entry(
        code="MIN003",
        title="Shape refused or changed at a node",
        severity="error",
        meaning="The target refuses the node's shapes or attributes, or gives an output of other shapes than "
        "the reference.",
        remedy="Have the owner of the stack look at the node with the shapes in the message.",
    ),
    Entry(
        code="MIN004",
        title="Weights do not fit a node",
        severity="error",
        meaning="Names or shapes of the node's weights are not those that the target's version of the node "
        "has.",
        remedy="Use the transformers version that the release was made for on both sides.",
    ),
    Entry(
        code="MIN005",
        title="Out of memory at a node",
        severity="error",
        meaning="The worker passed its memory limit, or the device ran out, on a batch of 2 x 16 tokens.",
        remedy="Give a larger --memory if the host has it; else this node does not fit the device as it is.",
    ),
    Entry(
        code="MIN006",
        title="Crash at a node",
        severity="error",
        meaning="The worker died while it ran the node. The other nodes were still tried.",
        remedy="Send the log lines to the owner of the stack; probe the node's operators one by one to find "
        "the kernel.",
    ),
    Entry(
        code="MIN007",
        title="Hang at a node",
        severity="error",
        meaning="The worker did not answer within the time limit and was killed. The other nodes were still "
        "tried.",
        remedy="If the stack only compiles slowly, give a larger --timeout; else treat it as a crash.",
    ),
    Entry(
        code="MIN008",
        title="Import fails",
        severity="error",
        meaning="A package that the stack needs cannot be imported in the worker's environment.",
        remedy="Install the package that the message names where the worker runs.",
    ),
    Entry(
        code="MIN009",
        title="Not claimed by the target",
        severity="warning",
        meaning="The target does not claim to be able to do this, so nothing can be said about it.",
        remedy="Judge by what other targets on the same device show, or wait for the stack to claim it.",
        undecided="unverified",
    ),
    Entry(
        code="MIN010",
        title="Output not finite at a node",
        severity="error",
        meaning="The node ran and gave NaN or infinity where the reference in the same precision is finite.",
        remedy="The numerics section shows whether it is the kernel or the precision.",
    ),
    Entry(
        code="MIN011",
        title="Error at a node",
        severity="error",
        meaning="The stack raised an error of no known class while it ran the node.",
        remedy="Read the message and the log lines.",
    ),
    Entry(
        code="MIN012",
        title="Nodes not run",
        severity="warning",
        meaning="These nodes could not be tried, for the reason given.",
        remedy="Remove the reason given and run again.",
        undecided="unverified",
    ),
    Entry(
        code="MIN013",
        title="Keys do not fit the target's loader",
        severity="error",
        meaning="The target's own loader reports missing or unexpected names, or other shapes, for the "
        "cut-down release.",
        remedy="Compare the names with those of the loader's model; a newer version of the stack may know "
        "the layout.",
    ),
    Entry(
        code="MIN014",
        title="Loader fails",
        severity="error",
        meaning="The target's own loader raised, died, hung or ran out of memory on the cut-down release.",
        remedy="Read the message; a quantised release may need a package that the loader names.",
    ),
    Entry(
        code="MIN015",
        title="Cut-down release not written",
        severity="warning",
        meaning="No smaller release could be made of this one, for the reason given, so the target's loader "
        "was not tried.",
        remedy="Load the whole release with the target, or remove the reason given.",
        undecided="unverified",
    ),
    Entry(
        code="MIN016",
        title="Loaded release does not generate",
        severity="error",
        meaning="The target loaded the cut-down release and then failed to continue the batch by four "
        "tokens.",
        remedy="Read the message; the nodes that failed in the decode phase are the likely cause.",
    ),
    Entry(
        code="MIN017",
        title="Target does not run nodes",
        severity="warning",
        meaning="The target does not claim the capability `fragment`; its loader was tried alone.",
        remedy="Judge by what other targets on the same device show, or wait for the stack to claim it.",
        undecided="unverified",
    ),
    Entry(
        code="MIN018",
        title="Tensors without a place",
        severity="info",
        meaning="The target's loader leaves out tensors for which the reference's structure has no place "
        "either, such as those of multi-token prediction.",
        remedy="Nothing, unless these tensors are to be used.",
    ),
)

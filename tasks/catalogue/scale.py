"""Findings of the scale stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "SCL001",
        "device computes wrongly",
        "error",
        "A computation with a known answer, at the model's own shapes and dtype, gave another answer.",
        "Run the vendor's own diagnosis on this device before anything else is believed of it.",
    ),
    Entry(
        "SCL002",
        "device does not repeat itself",
        "error",
        "The same computation on the same input gave other bits the second time.",
        "Look for a deterministic mode of the stack; if there is none, suspect the device.",
    ),
    Entry(
        "SCL003",
        "collective delivers wrong data",
        "error",
        "The data that a collective delivered are not those that the ranks sent.",
        "Update driver and communication library, and run the vendor's own collective test.",
    ),
    Entry(
        "SCL004",
        "rank lost",
        "error",
        "A rank died, hung or ended with an error while the ranks worked together.",
        "Read its log lines; start with the rank named here, the others only waited for it.",
    ),
    Entry(
        "SCL005",
        "operation failed",
        "error",
        "A computation or a collective raised an error instead of giving a result.",
        "Check that the communication library or kernel package supports this operation and dtype.",
    ),
    Entry(
        "SCL006",
        "tier not testable",
        "warning",
        "The target does not claim the capability that this tier needs, so nothing is known about it.",
        "Test it by other means, or write the capability into the target's stack.",
        undecided="unverified",
    ),
    Entry(
        "SCL007",
        "model tier held back",
        "warning",
        "The numerics stage failed, so batches and lengths of the model were not measured.",
        "Mend the first faulty node, then run again.",
        undecided="blocked",
    ),
    Entry(
        "SCL008",
        "no cut-down release",
        "warning",
        "The minimal run wrote no cut-down release, so batches and lengths of the model could not be "
        "measured.",
        "See the findings of the minimal run.",
        undecided="blocked",
    ),
    Entry(
        "SCL009",
        "worker lost",
        "error",
        "The process in which the target runs crashed, hung or ran out of memory during a tier.",
        "Read its log lines; they are the last ones that it wrote.",
    ),
    Entry(
        "SCL010",
        "more memory than expected",
        "warning",
        "A batch took much more memory than its weights, KV cache and activations explain.",
        "Plan with the measured figure, and look for a copy that the stack should not make.",
    ),
    Entry(
        "SCL011",
        "first token slower than expected",
        "warning",
        "The first token took much longer than the multiplications behind it explain at the device's own "
        "speed.",
        "Profile the prefill; a fallback operator or a needless copy is the usual cause.",
    ),
    Entry(
        "SCL012",
        "growth stopped early",
        "info",
        "Larger batches or lengths were left out because they would have passed the memory or time limit.",
        "Give the run more memory or time to see them.",
    ),
    Entry(
        "SCL013",
        "cut-down release does not run",
        "error",
        "The target could not load the cut-down release or could not generate with it.",
        "See the message; the minimal run names the node where it lies.",
    ),
    Entry(
        "SCL014",
        "output of the wrong size",
        "error",
        "A batch gave another number of sequences or tokens than was asked for.",
        "Look at how the stack pads batches and ends sequences.",
    ),
    Entry(
        "SCL015",
        "bandwidth drops with more devices",
        "warning",
        "The bus bandwidth of all devices is a small part of that of two.",
        "Compare pairs of devices; one slow link drags all of them.",
    ),
    Entry(
        "SCL016",
        "one device only",
        "info",
        "The stack sees a single device of this type, so nothing can be exchanged between devices.",
        "Run on a node with several devices to test collectives.",
    ),
)

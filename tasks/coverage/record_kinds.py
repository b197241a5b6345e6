"""What compiling one node of each kind showed: whether it runs, what became of it, which sizes it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from day0.adapters.base.values import Number, Value


class KindCompile(Value):
    """One kind of node, compiled and run by the target with random weights.

    Attributes:
        kind: digest of the graph.
        node: that was compiled, the first of its kind.
        nodes: how many of the kind the model has.
        role: of the node: `embedding`, `layer`, ...
        layer_kind: attention word, or empty.
        feed_forward: `dense`, `moe` or empty.
        phase: `prefill` or `decode`.
        outcome: `ran`, or a class of failure out of `day0.tasks.outcomes.FAILURES`.
        op: operator that the error names, empty where it names none.
        dtype: that the error names.
        shape: that the error names.
        place: node of the target's graph that the error names.
        detail: the error in one line.
        grade: `measured` under this very fingerprint, `inherited` from another of its family; empty where it
            was not run.
        operators: name -> number in the graph that the compiler was given.
        kernels: what is executed in their place -> how many, by the stack's own names.
        breaks: why parts run uncompiled.
        deviation: relative L2 error of the output against the CPU in the same dtype; None without an output.
        reduced: how the node that ran differs from the model's, `32 of 256 experts`, where one of full size
            would not fit into memory; empty where it does not.
    """

    kind: str
    node: str
    nodes: int = 1
    role: str = ""
    layer_kind: str = ""
    feed_forward: str = ""
    phase: str = "prefill"
    outcome: str
    op: str = ""
    dtype: str = ""
    shape: str = ""
    place: str = ""
    detail: str = ""
    grade: str = ""
    operators: Mapping[str, int] = {}
    kernels: Mapping[str, int] = {}
    breaks: Sequence[str] = ()
    deviation: Number | None = None
    reduced: str = ""


class KindSeconds(Value):
    """What one kind took on the target.

    Attributes:
        node: that was compiled.
        phase: `prefill` or `decode`.
        compile: seconds until the first answer, without the execution itself.
        run: seconds of the execution.
    """

    node: str
    phase: str
    compile: float
    run: float


class ShapeFailure(Value):
    """One case of the sweep that a kind did not survive."""

    case: str
    outcome: str
    op: str = ""
    detail: str = ""


class KindShapes(Value):
    """One kind of node over lengths, batches, paddings, caches and odd widths.

    Attributes:
        kind: digest of the graph.
        node: that was run, the first of its kind.
        role: of the node.
        answer: `dynamic`: one graph served the sizes; `static`: it was compiled anew for other sizes;
            `fallback`: parts of it run uncompiled; `failed`: it ran in no size; `unknown`: not tried, or in
            no size but the example's.
        grade: `measured` under this very fingerprint, `inherited` where a case is not; empty where nothing is
            known.
        ran: cases that ran.
        graphs: how many times something was compiled, all cases together.
        recompiled: cases for which it was compiled anew.
        fixed: why a graph for all sizes could not be made, in the compiler's words.
        breaks: why parts run uncompiled.
        failures: cases that failed.
        untested: cases for which no time was left, or that the model does not take.
    """

    kind: str
    node: str
    role: str = ""
    answer: str
    grade: str = ""
    ran: Sequence[str] = ()
    graphs: int = 0
    recompiled: Sequence[str] = ()
    fixed: str = ""
    breaks: Sequence[str] = ()
    failures: Sequence[ShapeFailure] = ()
    untested: Sequence[str] = ()

"""Every kind of fault seeded into a simulated accelerator, and what a probe makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.run_store import RunStore
from day0.adapters.targets.target import WorkerTarget
from day0.tasks.coverage.probe import probe
from support.captured import calls_of


@dataclass(frozen=True)
class Seeded:
    """One fault.

    Attributes:
        fault: word of `support.simulated_accelerator.FAULTS`.
        entry: what is faulty: `OP`, `OP:DTYPE` or `OP:ATTRIBUTE`.
        status: that a probe should find.
    """

    fault: str
    entry: str
    status: str

    @property
    def op(self) -> str:
        """The operator."""
        return self.entry.partition(":")[0]


SEEDED = (
    Seeded("missing", "aten.topk.default", "missing"),
    Seeded("missing", "aten.silu.default", "missing"),
    Seeded("dtype", "aten._softmax.default:bf16", "missing"),
    Seeded("wrong", "aten.rsqrt.default", "wrong"),
    Seeded("wrong", "aten.sigmoid.default:fp32", "wrong"),
    Seeded("clamp", "aten.exp.default", "wrong"),
    Seeded("clamp", "aten.neg.default", "wrong"),
    Seeded("ignored", "aten.add.Tensor:alpha", "wrong"),
    Seeded("ignored", "aten.gelu.default:approximate", "wrong"),
    Seeded("crash", "aten.cos.default", "crash"),
    Seeded("hang", "aten.sin.default", "hang"),
    Seeded("slow", "aten.index.Tensor", "slow"),
    Seeded("fallback", "aten.cumsum.default", "fallback"),
    Seeded("double", "aten.embedding.default", "double_fault"),
)
"""Operators that none of torch's composite operators calls in these models, so that each fault shows once."""


@dataclass(frozen=True)
class Cell:
    """What became of one seeded fault in one model.

    Attributes:
        model_type: whose operators were probed.
        seeded: the fault.
        found: status that the probe gave its operator; `native` where it was overlooked.
    """

    model_type: str
    seeded: Seeded
    found: str


@dataclass(frozen=True)
class Matrix:
    """All faults over all models.

    Attributes:
        cells: of faults whose operator the model calls in that dtype.
        false: `MODEL OP STATUS` of operators that were reported without a fault.
    """

    cells: Sequence[Cell]
    false: Sequence[str]

    def lines(self) -> Iterator[str]:
        """A table for a terminal or a page: one line a fault."""
        yield "| fault | where | should be | found | models |"
        yield "|---|---|---|---|---|"
        for seeded in SEEDED:
            cells = [cell for cell in self.cells if cell.seeded == seeded]
            hit = sum(cell.found == seeded.status for cell in cells)
            models = ", ".join(cell.model_type for cell in cells)
            yield f"| {seeded.fault} | {seeded.entry} | {seeded.status} | {hit} of {len(cells)} | {models} |"
        yield f"reported without a fault: {len(self.false)}"


Open = Callable[[Mapping[str, str]], WorkerTarget]
"""Opens the simulated accelerator with faults as options; whoever calls closes it."""


def fault_matrix(
    model_types: Sequence[str],
    open_target: Open,
    folder: Path,
    *,
    seeds: Sequence[Seeded] = SEEDED,
    faulty_alone: bool = False,
) -> Matrix:
    """Probes the operators of tiny models on an accelerator with all faults at once.

    Args:
        model_types: out of `support.tiny_models.TINY`.
        open_target: see `Open`.
        folder: for the registries.
        seeds: the faults.
        faulty_alone: whether operators without a fault are left out.
    """
    options: dict[str, str] = {}
    for seeded in seeds:
        options[seeded.fault] = f"{options.get(seeded.fault, '')} {seeded.entry}".strip()
    cells: list[Cell] = []
    false: list[str] = []
    for model_type in model_types:
        calls = [call for call in calls_of(model_type) if call.branch != "cpu"]
        if faulty_alone:
            calls = [call for call in calls if any(call.op == seeded.op for seeded in seeds)]
        with open_target(options) as target:
            found = probe(calls, target, RunStore(str(folder / model_type)))
        statuses = {(entry.op, tuple(entry.dtypes), entry.variant): entry.status for entry in found.ops}
        mine = [seeded for seeded in seeds if any(_hits(seeded, call) for call in calls)]
        for seeded in mine:
            hit = {
                statuses[call.op, tuple(call.dtypes), call.variant] for call in calls if _hits(seeded, call)
            }
            # An attribute that scales next to nothing (a norm's epsilon) shows in other rows alone.
            unseen = {"native"} if seeded.fault == "ignored" else set()
            told = seeded.status if hit - unseen == {seeded.status} else ", ".join(sorted(hit))
            cells.append(Cell(model_type, seeded, told))
        sound = {
            (call.op, tuple(call.dtypes), call.variant)
            for call in calls
            if not any(_hits(seeded, call) for seeded in mine)
        }
        false += [
            f"{model_type} {key[0]} {statuses[key]}" for key in sorted(sound) if statuses[key] != "native"
        ]
    return Matrix(tuple(cells), tuple(false))


def _hits(seeded: Seeded, call: OperatorCall) -> bool:
    op, _, qualifier = seeded.entry.partition(":")
    if call.op != op:
        return False
    return seeded.fault == "ignored" or not qualifier or list(call.dtypes[:1]) == [qualifier]

"""What the config implies without the weights: tensors, parameters, bytes and operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from day0.adapters.base.checkpoint import TensorBlock, TensorFault, TensorKind
from day0.adapters.base.progress import Progress, silent
from day0.adapters.checkpoints.table import TensorTable
from day0.adapters.models.expected_run import Answer, ask_expected, builder

from ..finding import Finding, Subject, make_finding
from .config_facts import ConfigFacts
from .counts import Counted, active_params, pattern_table, totals
from .expectation import asked_names
from .implied_storage import DeclaredStorage
from .patterns import list_tensors
from .quantization import DeclaredQuantization
from .readable import plural
from .record_reconciliation import Implied, ImpliedOperator
from .roles import look_around, place_of
from .seen import Part, Seen

NOT_ASKED = Answer(reason="not asked for")
_EXPERT = re.compile(r"(?<=experts\.)[0-9]+(?=\.)")


def implied_by() -> str:
    """What works it out, with its version; a stored record holds only for that."""
    return builder() or "nothing"


def ask(
    config: Mapping[str, object],
    counted: Iterable[Counted],
    faults: Iterable[TensorFault],
    progress: Progress = silent,
) -> Answer:
    """Has a process build the model that the config names, without weights.

    Args:
        config: config.json as parsed.
        counted: what is stored, so that its names can be told by the model's own.
        faults: tensors that are announced and cannot be read count as named.
        progress: told that it goes on.
    """
    if not config:
        return Answer(reason="config.json states nothing, or could not be read")
    if not isinstance(config.get("model_type"), str):
        return Answer(reason="config.json names no model_type")
    return ask_expected(config, asked_names(counted, faults), progress=progress)


def read_implied(seen: Seen) -> Part:
    """The facts that follow from the config alone."""
    answer = seen.answer
    if answer.reason:
        record = Implied(reason=answer.reason, by=implied_by() if answer is not NOT_ASKED else "")
        return Part({"implied": record}, _unknown(answer), {"/implied": "computed:nothing"})
    dtype = seen.facts.architecture.dtype
    plain = DeclaredStorage((), dtype)
    counted = seen.implied
    experts, top_k = seen.facts.architecture.experts, seen.facts.architecture.top_k
    record = Implied(
        status="computed",
        by=implied_by(),
        reason="",
        architecture=answer.architecture,
        totals=totals(counted, 0),
        active_params=active_params(counted, experts, top_k, shares_matrix(counted, answer)),
        patterns=pattern_table(counted),
        operators=_operators(answer.operators),
        unknown_phases=[f"{phase}: {reason}" for phase, reason in answer.failed.items()],
        plain_bytes=sum(plain.stored(tensor)[0].bytes for tensor in answer.tensors),
        left_out=_left_out(seen, counted),
    )
    source = f"computed:config.json built by {implied_by()} ({answer.architecture}) without weights"
    return Part({"implied": record}, (), {"/implied": source})


def _unknown(answer: Answer) -> Sequence[Finding]:
    if answer is NOT_ASKED:
        return ()
    message = f"which tensors the config implies is not known: {answer.reason}"
    return [make_finding("INV043", Subject(kind="config", name="config.json"), message)]


def shares_matrix(counted: Iterable[Counted], answer: Answer) -> bool:
    """Whether the model that was built has one matrix for embedding and head."""
    heads = any(item.place.role == "head" and item.place.part == "text" for item in counted)
    return bool(answer.tied) and not heads


def implied_tensors(facts: ConfigFacts, declared: DeclaredQuantization, answer: Answer) -> Sequence[Counted]:
    """The implied tensors as if they were stored, in the precision that the config declares.

    Empty where it is not known what the config implies.
    """
    if answer.reason:
        return ()
    storage = DeclaredStorage(declared.declarations, facts.architecture.dtype)
    names, kinds, packings = [], [], {}
    known: dict[tuple[str, str, tuple[int, ...]], tuple[TensorKind, str]] = {}
    for tensor in answer.tensors:
        key = (_EXPERT.sub("0", tensor.published), tensor.dtype, tensor.shape)
        if key not in known:
            known[key] = storage.stored(tensor)
        kind, packing = known[key]
        names.append(tensor.published)
        kinds.append(kind)
        packings[kind] = packing
    table = TensorTable([TensorBlock("config.json", names, kinds, [0] * len(names))])
    groups = list_tensors(table).groups
    around = look_around(groups, facts.architecture.layers, facts.mtp_layers > 0)
    counted = []
    for group in groups:
        place = place_of(group, around)
        packing = packings.get(TensorKind(group.dtype, group.shape, group.bytes // group.count), "")
        counted.append(Counted(group, place, group.elements if place.counts else 0, packing))
    return counted


def _operators(calls: Iterable[tuple[str, str, int]]) -> Sequence[ImpliedOperator]:
    sums: dict[str, int] = {}
    phases: dict[str, list[str]] = {}
    for op, phase, count in calls:
        sums[op] = sums.get(op, 0) + count
        if phase not in phases.setdefault(op, []):
            phases[op].append(phase)
    return [
        ImpliedOperator(op=op, phases=phases[op], calls=sums[op])
        for op in sorted(sums, key=lambda op: (-sums[op], op))
    ]


def _left_out(seen: Seen, counted: Sequence[Counted]) -> Sequence[str]:
    """What the config declares and the class that was built has not."""
    declared = seen.facts.mtp_layers
    if declared and not any(item.place.part == "mtp" for item in counted):
        return [f"{plural(declared, 'layer')} of multi-token prediction"]
    return []

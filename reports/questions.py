"""The three questions a person asks of a target, each answered with one sentence of evidence."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.minimal.record import LoadFact, MinimalRecord, NodeRunFact
from day0.tasks.numerics.record import Block, NumericsRecord
from day0.tasks.verdict import Verdict

from .model import Question, Stages
from .records import leading_message
from .results_question import results_answer
from .words import bytes_text, exact_text, listed, plural, sentence

_NOT_TRIED = ("not_run", "unsupported")


def three_questions(inventory: InventoryRecord, stages: Stages) -> Sequence[Question]:
    """Do the weights load, does the graph execute, can the results be trusted?"""
    weights = _weights(inventory, stages.minimal)
    graph = _graph(stages)
    results = results_answer(stages.numerics)
    return (
        Question(id="weights", question="Do the weights load?", answer=weights[0], evidence=weights[1]),
        Question(id="graph", question="Does the graph execute?", answer=graph[0], evidence=graph[1]),
        Question(
            id="results", question="Can the results be trusted?", answer=results[0], evidence=results[1]
        ),
    )


def _weights(inventory: InventoryRecord, minimal: MinimalRecord | None) -> tuple[str, str]:
    if inventory.verdict is Verdict.FAIL:
        return "no", sentence(
            leading_message(inventory.findings) or "the release is not consistent in itself"
        )
    if minimal is None:
        return "unverified", "The minimal run did not run."
    load = minimal.facts.load
    if load is None or load.outcome in _NOT_TRIED:
        return _weights_without_loader(minimal)
    if load.outcome != "loaded":
        return "no", sentence(
            f"the target's own loader gave up ({load.outcome}): {load.detail or 'no detail'}"
        )
    faults = _key_faults(load)
    if faults:
        answer = "no" if load.missing or load.mismatched else "partly"
        return answer, f"The target's own loader read the files but reports {faults}."
    return "yes", _loaded_sentence(inventory, minimal)


def _weights_without_loader(minimal: MinimalRecord) -> tuple[str, str]:
    ran = [node for node in minimal.facts.nodes if node.outcome == "ran"]
    if ran:
        taken = plural(len({node.name for node in ran}), "node")
        return (
            "partly",
            f"{taken} took the real weights; the stack has no loader of its own that could be asked.",
        )
    return "unverified", sentence(
        leading_message(minimal.findings) or "the target's own loader was not asked"
    )


def _key_faults(load: LoadFact) -> str:
    parts = [
        f"{exact_text(len(names))} {word} ({listed(names, 2)})"
        for word, names in (
            ("missing", load.missing),
            ("unexpected", load.unexpected),
            ("mis-shaped", load.mismatched),
        )
        if names
    ]
    return ", ".join(parts)


def _loaded_sentence(inventory: InventoryRecord, minimal: MinimalRecord) -> str:
    totals = inventory.facts.totals
    whole = f"{plural(totals.tensors, 'tensor')} in {plural(totals.shards, 'shard')}"
    sound = inventory.verdict is Verdict.PASS
    whole = f"all {whole} reconcile" if sound else f"the inventory of {whole} is {inventory.verdict}"
    cut = minimal.facts.cut
    if cut is None:
        part = "the release"
    else:
        layers = plural(len(cut.layers), "layer")
        part = f"{plural(cut.tensors, 'tensor')} ({bytes_text(cut.bytes)}, {layers})"
    return f"The target's own loader took {part} with no key missing, unexpected or mis-shaped; {whole}."


def _graph(stages: Stages) -> tuple[str, str]:
    minimal = stages.minimal
    if minimal is None:
        return "unverified", "The minimal run did not run."
    nodes = minimal.facts.nodes
    failed = [node for node in nodes if node.outcome != "ran" and node.outcome not in _NOT_TRIED]
    skipped = [node for node in nodes if node.outcome in _NOT_TRIED]
    if failed:
        return "no", _failed_sentence(nodes, failed)
    if not nodes or len(skipped) == len(nodes):
        return "unverified", sentence(leading_message(minimal.findings) or "no node was run")
    whole = _whole_model(stages.numerics)
    if skipped:
        named = listed([f"{node.name} {node.phase}" for node in skipped], 2)
        tried = f"{exact_text(len(nodes) - len(skipped))} of {exact_text(len(nodes))} node runs"
        return "partly", f"{tried} succeeded; not tried: {named}."
    if whole and whole[1]:
        return "partly", f"Each kind of node ran with the real weights, but {whole[0]}."
    return "yes", _ran_sentence(nodes) + (f"; {whole[0]}." if whole else ".")


def _failed_sentence(nodes: Sequence[NodeRunFact], failed: Sequence[NodeRunFact]) -> str:
    first = failed[0]
    reason = f"{first.outcome}: {first.detail}" if first.detail else first.outcome
    return sentence(
        f"{exact_text(len(failed))} of {exact_text(len(nodes))} node runs failed; "
        f"first {first.name} in {first.phase} ({reason})"
    )


def _ran_sentence(nodes: Sequence[NodeRunFact]) -> str:
    names, kinds = {node.name for node in nodes}, {node.kind for node in nodes}
    phases = listed(list(dict.fromkeys(node.phase for node in nodes)))
    return (
        f"{plural(len(names), 'node')} of {plural(len(kinds), 'kind')} ran with the real weights in {phases}"
    )


def _whole_model(numerics: NumericsRecord | None) -> tuple[str, bool] | None:
    """What the walk over the whole model adds, and whether some node did not run in it."""
    if numerics is None or not numerics.facts.blocks:
        return None
    blocks = numerics.facts.blocks
    idle = [block for block in blocks if block.local is None]
    if idle:
        return f"{exact_text(len(idle))} of {plural(len(blocks), 'node')} did not ({_named(idle)})", True
    return f"the whole model ran, all {plural(len(blocks), 'node')}", False


def _named(blocks: Sequence[Block]) -> str:
    return listed([block.name for block in blocks], 2)

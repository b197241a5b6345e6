"""Whether the reference of a comparison can be trusted, asked once a release and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from day0.adapters.base.skeleton import Node
from day0.adapters.base.values import digest
from day0.adapters.models.likelihood import Passage
from day0.adapters.models.stock_model import fp32_bytes

from ... import thresholds
from ..measures.values import float_tensors
from ..prompts.passes import MAIN, Pass
from ..question import Question
from ..record_parts import ReferenceCheck
from ..sequences import Sequences
from ..walk.case import Case
from ..walk.node_work import NodeWork
from ..walk.unit_keys import UNIT_VERSION
from ..walk.units import Unit, load_unit, save_unit
from .reference_check import check_reference, english_passage, streaming_arms
from .samples import load_samples

ENGLISH = "english"


class ReferenceTrust:
    """Takes the reference's logits from the walk and has them checked after it.

    Args:
        question: what is compared.
        given: its sequences.
    """

    def __init__(self, question: Question, given: Sequences) -> None:
        self._question, self._given = question, given
        self._passage = self._english()
        self._logits: dict[str, Tensor] = {}

    def case(self) -> Case:
        """The case with a text of plain English beside its passes, where a likelihood will be needed."""
        case = self._given.case
        if self._passage is None:
            return case
        english = Pass(ENGLISH, (tuple(self._passage.ids),), alone=True)
        return replace(case, passes=(*case.passes, english))

    def record(self, node: Node, work: NodeWork) -> None:
        """Keeps the reference's output of the last node."""
        if node.role != "head":
            return
        for name in (MAIN, ENGLISH):
            output = work.reference_outputs.get(f"reference/{name}")
            tensors = float_tensors(output) if output is not None else []
            if tensors and tensors[0].dim() == 3:
                self._logits[name] = tensors[0][0]

    def check(self, *, stopped: bool = False) -> ReferenceCheck:
        """The check, from the store where it was made before.

        Args:
            stopped: whether the walk ended before its last node.

        Raises:
            InputError: the file of samples cannot be used.
        """
        question, case = self._question, self._given.case
        samples = load_samples(Path(question.asked.samples)) if question.asked.samples else ()
        key = digest(
            {
                "version": UNIT_VERSION,
                "check": [question.release.config_digest, question.release.weights_digest],
                "builder": dict(case.skeleton.builder),
                "tokens": list(case.tokens.ids),
                "samples": [vars(sample) for sample in samples],
                "memory": question.memory,
                "dtype": case.reference_dtype,
            }
        )
        unit = load_unit(case.store, key)
        if unit is not None:
            return ReferenceCheck.model_validate(unit.facts["check"])
        ours = self._logits.get(MAIN)
        if ours is None and self._cheap() and not stopped:  # its last node came from the store
            ours = streaming_arms(question.release, case.skeleton).exact(case.tokens.ids)
        if ours is None:
            return ReferenceCheck(detail="its output was not reached")
        check = check_reference(
            question.release,
            case.skeleton,
            ours.float(),
            case.tokens.ids,
            question.memory,
            samples,
            tokenizer=self._given.tokenizer,
            english=self._logits.get(ENGLISH),
            progress=question.progress,
        )
        save_unit(case.store, key, Unit({}, {"check": check.model_dump(mode="json")}))
        return check

    def _cheap(self) -> bool:
        """Whether the weights may be read once more."""
        tensors = self._given.case.checkpoint.tensors
        return sum(info.bytes for info in tensors.values()) <= thresholds.NUMERICS_SAY_BYTES

    def _english(self) -> Passage | None:
        skeleton, tokenizer = self._given.case.skeleton, self._given.tokenizer
        if tokenizer is None or fp32_bytes(skeleton) <= self._question.memory // 2:
            return None
        return english_passage(tokenizer, skeleton)

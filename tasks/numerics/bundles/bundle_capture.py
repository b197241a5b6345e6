"""`day0 reference capture`: the reference walks alone, and everything it gives goes into a bundle."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from day0.adapters.base.errors import InputError
from day0.adapters.base.release import Release
from day0.adapters.base.skeleton import Node
from day0.adapters.base.target import Call
from day0_worker.dtypes import short_dtype

from ...reference_arm import Arm
from ..made import noise_text
from ..precision.fake_noise import carried
from ..question import Question
from ..record_parts import ReferenceCheck
from ..sequences import Sequences, sequences_of
from ..spread.span import SpanPass
from ..trust.reference_trust import ReferenceTrust
from ..walk.case import Case
from ..walk.lockstep import compare_model
from ..walk.node_work import NodeWork
from ..walk.units import Unit
from .bundle import FORMAT, BundleCall, BundleHead, BundleWriter
from .bundle_attention import attentions_of
from .bundle_contents import content_of, structure_of, tensors_of
from .bundle_size import expected_size

_LOGGER = logging.getLogger("day0.reference")


def capture_bundle(question: Question, dtype: str, options: Mapping[str, str], path: Path) -> BundleHead:
    """Runs the reference over the whole model and writes the bundle.

    Args:
        question: what is captured; its store keeps finished nodes, so a killed capture goes on.
        dtype: short name of the precision that targets will have; one that can be compared.
        options: of these targets that change the model's own masks (`attn`).
        path: of the file.

    Raises:
        InputError: E198, the model does not have the attention that the options name.
        Day0Error: the reference could not go to the end; no file is written.
    """
    carriage = carried(dtype, question.skeleton.dtype, question.release.config)
    assert carriage is not None, "others are refused before"
    attention = attentions_of(question.skeleton, carriage.dtype, options)
    case = Case(
        skeleton=question.skeleton,
        checkpoint=question.release.checkpoint,
        dtype=carriage.dtype,
        store=question.store,
        target="",
        options=options,
        memory=question.memory,
        step="reference",
        progress=question.progress,
        fake=carriage.fake,
    )
    given = sequences_of(case, question)
    _say_size(given.case, path)
    trust = ReferenceTrust(question, given)
    recorder = _Recorder(given.case, question.release, path)

    def record(node: Node, work: NodeWork) -> None:
        recorder.record(node, work)
        trust.record(node, work)

    try:
        comparison = compare_model(trust.case(), None, record=record)
        if comparison.stopped is not None:
            raise comparison.stopped
        left_out = {**given.left_out, **comparison.dropped}
        head = _head(question, given, recorder, left_out, trust.check(), attention)
        recorder.writer.finish(head)
        return head
    except BaseException:  # a kill included: no half-written file may stay
        recorder.writer.give_up()
        raise


def _say_size(case: Case, path: Path) -> None:
    size, logits = expected_size(case)
    if size:
        said = "%s will take about %.1f MiB, %.1f MiB of them for logits; fewer prompts (--prompts) take less"
        _LOGGER.info(said, path, size / 2**20, logits / 2**20)


class _Recorder:
    """Writes each call, and finds out which of its inputs are outputs of calls before it.

    Args:
        case: what is captured.
        release: whose weights they are.
        path: of the bundle.
    """

    def __init__(self, case: Case, release: Release, path: Path) -> None:
        try:
            self.writer = BundleWriter(path)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error}", code="E194") from error
        self._release = release
        self._noise = Arm(case.skeleton, case.dtype, case.options)
        self.contents: dict[str, str] = {}
        self.dtypes: dict[str, dict[str, str]] = {}
        self._outputs: dict[str, tuple[int, Mapping[str, Call]]] = {}

    def record(self, node: Node, work: NodeWork) -> None:
        """Adds one call."""
        number = len(self.writer.calls)
        there = [step for step in work.steps if f"reference/{step.name}" in work.reference_outputs]
        names = [step.name for step in there if not step.alone]
        links = {name: self._links(node, work.inputs[name].reference, name) for name in names}
        call = BundleCall(
            node=node.name,
            passes=names,
            links={name: found for name, (found, _) in links.items()},
            open=[name for name, (_, is_open) in links.items() if is_open],
        )
        lowered = {f"lowered/{name}": work.lowered[name] for name in names}
        kept = {key: value for key, value in work.reference_outputs.items() if key.partition("/")[2] in names}
        self.writer.add(call, Unit({**kept, **lowered}, work.facts))
        if node.kind not in self.dtypes:
            self.dtypes[node.kind] = {
                name: short_dtype(dtype) for name, dtype in self._noise.dtypes(node).items()
            }
        for name in tensors_of(node):
            if name not in self.contents:
                self.contents[name] = content_of(self._release, name)
        if node.role != "head":
            outputs = {name: work.reference_outputs[f"reference/{name}"] for name in names}
            self._outputs[node.name] = (number, outputs)

    def _links(self, node: Node, inputs: Call, step: str) -> tuple[dict[str, tuple[int, str]], bool]:
        """Tensor -> the output that it is; and whether one that others feed is none of them."""
        sources = [self._outputs[name] for name in reversed(node.reads) if name in self._outputs]
        found: dict[str, tuple[int, str]] = {}
        for name, tensor in inputs.tensors.items():
            for number, outputs in sources:
                match = _equal(tensor, outputs[step]) if step in outputs else None
                if match is not None:
                    found[name] = (number, match)
                    break
        return found, bool(sources) and not found


def _equal(tensor: Tensor, output: Call) -> str | None:
    for name, other in output.tensors.items():
        if tensor.shape == other.shape and tensor.dtype == other.dtype and torch.equal(tensor, other):
            return name
    return None


def _head(
    question: Question,
    given: Sequences,
    recorder: _Recorder,
    left_out: Mapping[str, str],
    check: ReferenceCheck,
    attention: tuple[str, str],
) -> BundleHead:
    release, case = question.release, given.case
    version = case.skeleton.builder.get("transformers", "")
    return BundleHead(
        format=FORMAT,
        model=release.model,
        revision=release.revision or "",
        config_digest=release.config_digest,
        structure=structure_of(release.checkpoint),
        contents=recorder.contents,
        skeleton=case.skeleton,
        reference=f"transformers {version} cpu {case.reference_dtype}",
        reference_dtype=case.reference_dtype,
        dtype=case.dtype,
        options=dict(case.options),
        dtypes=recorder.dtypes,
        prompt=question.prompt,
        prompt_tokens=case.tokens.prompt,
        said=case.tokens.said,
        passes=[SpanPass.of(step) for step in case.passes],
        left_out=dict(left_out),
        calls=recorder.writer.calls,
        check=check.model_dump(mode="json"),
        precision=case.precision if case.fake is not None else "",
        noise=noise_text(case.dtype, case.fake) if case.fake is not None else "",
        attention=attention[0],
        own_attention=attention[1],
    )

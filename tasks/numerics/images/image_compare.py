"""Vision tower and projector held against the reference, where the model takes images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from day0.adapters.base.errors import CheckpointError, SkeletonError, SourceError
from day0.adapters.base.image_skeleton import ImageSkeleton
from day0.adapters.base.skeleton import Node, Skeleton, path_inside
from day0.adapters.base.target import Target
from day0.adapters.models.forward_arguments import forward_takes
from day0.adapters.models.image_inputs import PIXELS_NAMES
from day0.adapters.models.skeleton_store import load_or_build_image_skeleton

from ...target_nodes import TargetNodes
from ..descent.first_fault import FirstFaults
from ..measures.signatures import Signature
from ..prompts.passes import AUTO, wants
from ..question import Question
from ..record_parts import ImageFeatures
from ..walk.case import Case
from ..walk.lockstep import NO_TEXT, Comparison, compare_model
from ..walk.node import NodeFacts, not_compared
from .image_check import check_images
from .image_features import features_of
from .image_passes import IMAGE, NAMES, image_case

NO_IMAGE = "neither a prompt of text nor an image reaches it"
TEXT_ONLY = "the model takes no images"
BETWEEN = "its parameters are used between nodes, by code that all sides share"
"""Reason of a module whose own parameters the reference uses for the target too."""
_TOWER = ("vision", "projector")


@dataclass(frozen=True)
class Images:
    """What came of the images.

    Attributes:
        text: the comparison on text, without the nodes that the images' says more of.
        facts: for the record; None where the model takes no images.
        comparison: on images; None where there was none.
        skeleton: of what it walked; None likewise.
        seconds: that the target spent executing.
        peak_bytes: highest that an answer of it named.
        left_out: prompt -> why it did not run, where a person asked for it and the model takes no images.
    """

    text: Comparison
    facts: ImageFeatures | None = None
    comparison: Comparison | None = None
    skeleton: Skeleton | None = None
    seconds: float = 0.0
    peak_bytes: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> Sequence[Comparison]:
        """Of images and of text, in the order in which an image and then the text that holds it are read."""
        return (self.comparison, self.text) if self.comparison is not None else (self.text,)

    @property
    def nodes(self) -> Sequence[NodeFacts]:
        """Those of all parts."""
        return [facts for part in self.parts for facts in part.nodes]

    @property
    def dropped(self) -> Mapping[str, str]:
        """Pass -> why it did not go to the end."""
        return {name: why for part in self.parts for name, why in part.dropped.items()}

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """Of the target's output at each node."""
        return {name: found for part in self.parts for name, found in part.signatures.items()}

    @property
    def reference_seconds(self) -> float:
        """Spent in reference and noise arm."""
        return sum(part.reference_seconds for part in self.parts)

    @property
    def reused(self) -> int:
        """Calls whose target answers came from the store."""
        return sum(part.reused for part in self.parts)


def with_images(question: Question, case: Case, target: Target, text: Comparison) -> Images:
    """Compares what an image calls, after the text.

    Args:
        question: what is asked.
        case: as compared on text.
        target: that is compared; the weights of a node which it holds are others afterwards.
        text: what the text came to.
    """
    skeleton = case.skeleton
    if not any(forward_takes(skeleton.architecture, name) for name in PIXELS_NAMES):
        named = question.asked.prompts != AUTO and wants(IMAGE, question.asked.prompts)
        return Images(text, left_out={IMAGE: TEXT_ONLY} if named else {})
    if not wants(IMAGE, question.asked.prompts):
        return _without(skeleton, text, "no image was asked for")
    try:
        found = load_or_build_image_skeleton(question.release, question.store)
    except SkeletonError as error:
        return _without(skeleton, text, error.message)
    if found.skeleton is None:
        return _without(skeleton, text, found.reason)
    return _compared(question, case, target, text, found, found.skeleton)


def _without(skeleton: Skeleton, text: Comparison, reason: str) -> Images:
    why = f"{NO_TEXT}, and no image ran: {reason}"
    return Images(replace(text, nodes=_said(skeleton, text.nodes, why)), ImageFeatures(reason=reason))


def _said(skeleton: Skeleton, nodes: Sequence[NodeFacts], reason: str) -> list[NodeFacts]:
    """Says of the nodes of tower and projector that text does not reach why they were not compared."""
    apart = {node.name for node in skeleton.nodes if not node.called and node.role in _TOWER}
    return [
        facts.model_copy(update={"block": facts.block.model_copy(update={"reason": reason})})
        if facts.block.name in apart and facts.block.reason == NO_TEXT
        else facts
        for facts in nodes
    ]


def _compared(
    question: Question, case: Case, target: Target, text: Comparison, found: ImageSkeleton, skeleton: Skeleton
) -> Images:
    images = image_case(case, skeleton, found.calls)
    nodes = TargetNodes(target, skeleton, case.dtype)
    walked = compare_model(images, nodes, [FirstFaults(target, images)])
    features = features_of(walked, found.calls, case.dtype, check_images(question, images, walked))
    called = {node.name for node in skeleton.nodes if node.called}
    known = [renamed(facts) for facts in walked.nodes if facts.block.name in called]
    further = _left(case.skeleton, skeleton)
    rest = [fact for node in further for fact in _not_called(node, called)]
    about = {facts.block.name for facts in (*known, *rest)} | _covered(case.skeleton, skeleton)
    about |= {node.name for node in further}
    left = [facts for facts in text.nodes if facts.block.name not in about]
    return Images(
        text=replace(text, nodes=_said(case.skeleton, left, NO_IMAGE)),
        facts=features,
        comparison=replace(
            walked,
            nodes=[*known, *rest],
            dropped={NAMES[name]: why for name, why in walked.dropped.items()},
            stopped=walked.stopped if isinstance(walked.stopped, CheckpointError | SourceError) else None,
        ),
        skeleton=skeleton,
        seconds=nodes.seconds,
        peak_bytes=nodes.peak_bytes,
    )


def renamed(facts: NodeFacts) -> NodeFacts:
    """Facts with the names of images in place of those of the walk's passes."""
    return facts.model_copy(
        update={
            "beyond": {NAMES.get(name, name): why for name, why in facts.beyond.items()},
            "ratios": {NAMES.get(name, name): ratio for name, ratio in facts.ratios.items()},
            "unseen": tuple(NAMES.get(name, name) for name in facts.unseen),
        }
    )


def _parameters(node: Node) -> set[str]:
    return {path_inside(node.name, name) for name in (*node.weights, *node.missing)}


def _uncalled(text: Skeleton) -> dict[str, set[str]]:
    """Node that a prompt of text does not call -> its parameters."""
    return {node.name: _parameters(node) for node in text.nodes if not node.called}


def _covered(text: Skeleton, image: Skeleton) -> set[str]:
    """Nodes of the text's skeleton of which the image's calls a part, and says of the rest by itself."""
    called = {name for node in image.nodes if node.called for name in _parameters(node)}
    return {name for name, held in _uncalled(text).items() if held & called}


def _left(text: Skeleton, image: Skeleton) -> list[Node]:
    """Nodes with the rest of those that an image calls in part, and containers whose own it uses."""
    covered = _covered(text, image)
    held = {name for node, names in _uncalled(text).items() if node in covered for name in names}
    called = {node.name for node in image.nodes if node.called}
    return [
        node
        for node in image.nodes
        if not node.called and node.weights and (_parameters(node) & held or _holds(node, called))
    ]


def _not_called(node: Node, called: set[str]) -> list[NodeFacts]:
    """Of a container one for each parameter that lies in it, under its own name; else one for the node."""
    if not _holds(node, called):
        return [not_compared(node, NO_IMAGE)]
    role = node.role if node.role in _TOWER else "vision"
    return [
        not_compared(node.model_copy(update={"name": path_inside(node.name, name), "role": role}), BETWEEN)
        for name in node.weights
    ]


def _holds(node: Node, called: set[str]) -> bool:
    return any(name.startswith(path_inside(node.name, "")) for name in called)

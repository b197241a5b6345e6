"""Bundles from and for the command line: release and structure opened, refusals made, sides put together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from day0.adapters.base.errors import InputError
from day0.adapters.base.progress import log_progress
from day0.adapters.base.release import Release
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Target, TargetDescription
from day0.adapters.base.target_spec import TargetSpec

from ...job import NumericsOptions, RunOptions
from ...target_nodes import TargetNodes
from ..precision.fake_noise import carried
from ..precision.lowerings import LOWERINGS
from ..prompts.tokens import Tokens
from ..question import Question
from ..walk.case import REFERENCE_DTYPE, Case
from ..walk.lockstep import Comparison
from .bundle import Bundle, BundleHead
from .bundle_attention import refuse_other_attention, refuse_unknown_attention
from .bundle_capture import capture_bundle
from .bundle_compare import compare_with_bundle
from .bundle_contents import refuse_other_release


def capture_release(
    model: str,
    revision: str | None,
    store: str,
    options: RunOptions,
    path: Path,
    dtype: str,
    attn: str,
    prompts: str,
) -> BundleHead:
    """Opens a release and writes the bundle of its reference.

    Raises:
        Day0Error: the release cannot be used, or the reference did not go to the end.
        InputError: E195, the precision is none that can be compared; E198, the attention is none that the
            reference has.
    """
    from day0.adapters.checkpoints.release import open_release
    from day0.adapters.models.skeleton_store import load_or_build_skeleton

    refuse_unknown_attention(attn)
    release = open_release(model, revision)
    run_store = RunStore(store)
    skeleton = load_or_build_skeleton(release, run_store)
    precision = dtype or skeleton.dtype
    if carried(precision, skeleton.dtype, release.config) is None:
        raise InputError(
            f"targets in {precision} cannot be compared",
            code="E195",
            remedy=f"Give --dtype out of {', '.join(dict.fromkeys([*REFERENCE_DTYPE, *LOWERINGS]))}.",
        )
    question = Question(
        release=release,
        skeleton=skeleton,
        store=run_store,
        prompt=options.prompt,
        progress=log_progress,
        asked=NumericsOptions(prompts=prompts),
        memory=options.memory_limit,
    )
    return capture_bundle(question, precision, {"attn": attn} if attn else {}, path)


def opened_bundle(path: str, release: Release, spec: TargetSpec, prompt: str) -> Bundle:
    """The bundle, once it is sure that it is of this release and for this target.

    Args:
        path: of the file.
        release: that is compared.
        spec: of the target; one without a precision has the bundle's.
        prompt: that is asked for; a bundle holds one.

    Raises:
        InputError: E191 to E193; E196, it is for targets in another precision or with another attention;
            E197, of another prompt or tokenizer.
    """
    bundle = Bundle(Path(path))
    head = bundle.head
    refuse_other_release(head, release)
    dtype = spec.dtype or head.computes_in
    if dtype != head.computes_in:
        raise InputError(
            f"{path} was captured for targets in {head.computes_in}, this one is in {dtype}",
            code="E196",
            remedy=f"Compare a target in {head.computes_in}, or capture the reference with --dtype {dtype}.",
        )
    refuse_other_attention(path, head, spec)
    _refuse_other_tokens(bundle, release, prompt)
    return bundle


def _refuse_other_tokens(bundle: Bundle, release: Release, prompt: str) -> None:
    """The release's own tokenizer must still make the bundle's tokens of the bundle's prompt."""
    from day0.adapters.models.tokenizer import load_tokenizer

    head = bundle.head
    tokenizer = load_tokenizer(release, (prompt,)) if head.prompt_tokens else None
    if tokenizer is None:
        return
    ids: Sequence[int] = head.passes[0].ids[0][: head.prompt_tokens]
    if prompt != head.prompt or list(tokenizer.encode(prompt, special=True))[: len(ids)] != list(ids):
        raise InputError(
            f"{bundle.path} holds other tokens than {release.model} makes of the prompt {prompt!r}",
            code="E197",
            remedy=f"Compare with --prompt {head.prompt!r} and the tokenizer of the captured release.",
        )


def compare_opened(
    bundle: Bundle, question: Question, target: Target, description: TargetDescription, identity: str
) -> tuple[Case, Comparison]:
    """The walk over a bundle's calls.

    Args:
        bundle: opened, of this release.
        question: whose release and store are used; its skeleton is the bundle's.
        target: that is compared.
        description: of it.
        identity: digest of everything about the target that its numbers depend on.
    """
    head = bundle.head
    passes = [step.as_pass() for step in head.passes]
    case = Case(
        skeleton=head.skeleton,
        checkpoint=question.release.checkpoint,
        dtype=head.dtype,
        store=question.store,
        target=identity,
        options=target.spec.options,
        tokens=Tokens(tuple(passes[0].ids[0]), head.prompt_tokens, head.said),
        passes=passes,
        memory=question.memory,
        step=f"numerics {target.spec}",
        progress=question.progress,
    )
    nodes = TargetNodes(target, head.skeleton, head.dtype)
    return case, compare_with_bundle(case, bundle, question.release, nodes)

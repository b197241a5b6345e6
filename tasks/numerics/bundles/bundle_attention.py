"""With which attention a bundle's reference ran, and whether a target's is the same.

The masks that nodes are given depend on it: one leaves out a mask that the other needs, so that a target with
another attention than the bundle's computes something else, however right it is. It is the one option of a
target that the reference follows (`reference_options`).
"""

from __future__ import annotations

from collections.abc import Mapping

from day0.adapters.base.errors import InputError, SkeletonError
from day0.adapters.base.skeleton import Skeleton
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.models.architecture import build_meta_model

from ...reference_arm import reference_options
from .bundle import BundleHead


def refuse_unknown_attention(name: str) -> None:
    """Refuses an attention that the reference, which would run with its own instead, cannot follow.

    Args:
        name: as `--attn` has it; empty: the model's own.

    Raises:
        InputError: E198, it is none of those.
    """
    if name and _followed({"attn": name}) != name:
        raise InputError(
            f"the reference cannot run with the attention {name!r}",
            code="E198",
            remedy="Give --attn eager or --attn sdpa; for targets with any other leave it out.",
        )


def attentions_of(skeleton: Skeleton, dtype: str, options: Mapping[str, str]) -> tuple[str, str]:
    """With which attention the reference runs for targets with these options, and for those that name none.

    Raises:
        InputError: E198, the model does not have the attention that is asked for.
    """
    own = _built(skeleton, dtype, {})
    asked = _followed(options)
    if not asked:
        return own, own
    try:
        return _built(skeleton, dtype, options), own
    except SkeletonError as error:
        raise InputError(
            f"{skeleton.architecture} does not run with the attention {asked!r}: {error.message}",
            code="E198",
            remedy=f"Leave --attn out: the model then runs with {own or 'its own'}.",
        ) from error


def refuse_other_attention(path: str, head: BundleHead, spec: TargetSpec) -> None:
    """Refuses a target to which the walk itself would give other masks than those of the bundle.

    Args:
        path: of the bundle, for the sentence.
        head: its head.
        spec: of the target.

    Raises:
        InputError: E196, the target runs with another attention.
    """
    asked, was = _followed(spec.options), _followed(head.options)
    runs, has = asked or head.own_attention, head.attention or was
    if runs == has:
        return
    capture = f"with --attn {runs}" if runs else "without --attn"
    compare = f"with ?attn={has}" if has else "that names no attn"
    raise InputError(
        f"{path} was captured for targets with {_said(has)}, {spec} runs with {_said(runs)}",
        code="E196",
        remedy=f"Capture the reference {capture}, or compare a target {compare}.",
    )


def _said(attention: str) -> str:
    return f"the attention {attention}" if attention else "the model's own attention"


def _followed(options: Mapping[str, str]) -> str:
    """The attention that the reference takes over from a target's options; empty: none."""
    return reference_options(options).get("attn", "")


def _built(skeleton: Skeleton, dtype: str, options: Mapping[str, str]) -> str:
    """The attention that transformers chooses for the reference, by its name; empty where it has none."""
    model = build_meta_model(skeleton.config, dtype, reference_options(options)).model
    return str(getattr(model.config.get_text_config(), "_attn_implementation", None) or "")

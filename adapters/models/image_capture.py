"""The operators of a vision tower, its projector, and of merging an image into the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.errors import words_of
from ..base.operator_call import OperatorCall
from ..base.operator_capture import FunctionCall
from ..base.values import Anomaly
from .image_features import features_path, function_at, token_count
from .image_inputs import (
    Image,
    about_tokens,
    images_for,
    inputs_for,
    takes_images,
    token_ids,
)
from .known_values import KnownValues
from .phase_inputs import PREFILL_TOKENS
from .recorder import Recorded, record_phase, until_it_fails

IMAGE_CALLS = 60_000
"""Dispatched calls after which an image is given up."""


class NoImageForm(ValueError):
    """The model takes an image in none of the forms that are tried."""


def capture_image(
    model: torch.nn.Module, config: Any, device: str, plain: Sequence[OperatorCall]
) -> tuple[list[OperatorCall], list[FunctionCall], list[Anomaly]]:
    """What one image adds to a short prefill: the tower, the projector, and merging it into the text.

    The forward runs on meta at full width, with the values of all that is computed from token ids and grids
    (see `KnownValues`).

    Args:
        model: on the meta device, in eval mode.
        config: its transformers config.
        device: type that model code is told.
        plain: calls of the prefill without an image.

    Returns:
        Calls of branch `image`, calls at switch points in the tower, and an anomaly `part_not_captured` for
        each part that the config has and that could not be run.
    """
    anomalies = [
        _not_captured(part, "its inputs are not made; only text and images are")
        for part in ("audio",)
        if getattr(config, f"{part}_config", None) is not None
    ]
    if not takes_images(model):
        return [], [], anomalies
    try:
        found = _record(model, config, device)
    except Exception as error:  # third-party model code: the text is captured all the same
        return [], [], [_not_captured("vision", words_of(error)), *anomalies]
    if found.failure is not None:
        why = f"its forward failed, and only what it called before is listed: {words_of(found.failure)}"
        anomalies = [_not_captured("vision", why), *anomalies]
    points = found.tower.functions if found.tower else _new_points(found.whole)
    return _new_calls(found.whole.calls, plain), list(points), anomalies


@dataclass(frozen=True)
class _Found:
    """The forward with an image, and the tower alone where the model has a way to run it.

    Attributes:
        whole: up to where it failed, if it did.
        tower: None where there is no way to run it alone.
        failure: of the forward.
    """

    whole: Recorded
    tower: Recorded | None
    failure: Exception | None = None


def _record(model: torch.nn.Module, config: Any, device: str) -> _Found:
    path = features_path(model)
    features = function_at(model, path) if path else None
    failures: list[Exception] = []
    for image in images_for(model, config):
        tower, count = None, 1
        try:
            if features is not None:
                tower, count = _count(model, device, features, image)
        except Exception as error:  # third-party model code: the next form is tried
            failures.append(error)
            continue
        for optional in (False, True):
            try:
                return _Found(_run(model, *_forward(model, config, image, count, optional), device), tower)
            except Exception as error:  # third-party model code: called otherwise, or the next form
                failures.append(error)
        if tower is not None:  # it took this form, so that no other one helps
            forward, length = _forward(model, config, image, count, optional=False)
            return _Found(_run(model, until_it_fails(forward), length, device), tower, failures[-2])
    if not failures:
        raise NoImageForm("no convolution or product over patches was found, by which pixels could be cut")
    raise failures[0]


def _new_calls(calls: Sequence[OperatorCall], plain: Sequence[OperatorCall]) -> list[OperatorCall]:
    """Those that the image adds to a prefill of text: other operators or dtypes, or other modules' calls."""
    known = {(call.op, tuple(call.dtypes), path) for call in plain for path in call.modules or [call.module]}
    return [
        call.model_copy(update={"branch": "image"})
        for call in calls
        if (call.op, tuple(call.dtypes), call.module) not in known
    ]


def _new_points(whole: Recorded) -> list[FunctionCall]:
    """Those outside the text; without a way to run the tower alone nothing tells them apart for sure."""
    words = ("vision", "visual", "image")
    return [
        point
        for point in whole.functions
        if all(any(word in path for word in words) for path in point.modules)
    ]


def _count(
    model: torch.nn.Module, device: str, features: Callable[..., Any], image: Image
) -> tuple[Recorded, int]:
    """The tower's calls, and the tokens for which the image stands."""
    inputs, made = inputs_for(features, image, _dtype(model)), []
    tower = _run(model, lambda: made.append(features(**inputs)), PREFILL_TOKENS, device)
    return tower, token_count(made[-1]) or 1


def _forward(
    model: torch.nn.Module, config: Any, image: Image, count: int, optional: bool
) -> tuple[Callable[[], Any], int]:
    """The forward of a prompt with the image, and how long the prompt is."""
    length = max(PREFILL_TOKENS, count + 4)
    tokens = token_ids(config, count, length)
    inputs = inputs_for(model.forward, image, _dtype(model), optional=optional)
    inputs |= {"input_ids": tokens, **about_tokens(model, config, tokens)}
    return lambda: model(**inputs), length


def _dtype(model: torch.nn.Module) -> torch.dtype:
    return next((value.dtype for value in model.parameters() if value.is_floating_point()), torch.float32)


def _run(model: torch.nn.Module, run: Callable[[], Any], tokens: int, device: str) -> Recorded:
    """As the phases are run: where the CPU is claimed, tensors that code does not place lie on it too."""
    failures: list[Exception] = []
    for made_on_meta in (True, False) if device == "cpu" else (False, True):
        try:
            return record_phase(
                model, run, phase="prefill", device=device, made_on_meta=made_on_meta,
                tokens=tokens, limit=IMAGE_CALLS, oracle=KnownValues,
            )  # fmt: skip
        except Exception as error:  # third-party model code
            failures.append(error)
    raise failures[0]


def _not_captured(part: str, why: str) -> Anomaly:
    message = f"operators of the {part} part could not be captured: {why}"
    return Anomaly(code="part_not_captured", subject=part, message=message)

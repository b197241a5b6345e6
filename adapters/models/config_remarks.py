"""What a config says that no model can mean, although one is built from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..base.values import Anomaly
from .quantisation_kernels import quantiser, stated_method

_DEPTHS = frozenset({"num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers"})
_FILE = "config.json"
_LISTED = 5
_LONGEST = 60


def remarks_of(config: Mapping[str, Any]) -> list[Anomaly]:
    """Anomalies of a config from which transformers builds a model all the same.

    `no_blocks`: a depth below one, so that what is captured stands around blocks that are not there;
    `not_a_number`: NaN, which transformers computes with; `unknown_quantization`: a scheme for which
    transformers has no quantiser, so that its kernels are not known. Infinity is none: real configs hold it.

    Args:
        config: config.json as parsed.
    """
    found = []
    nowhere = []
    for path, value in _leaves(config):
        name = path.rpartition("/")[2]
        if name in _DEPTHS and type(value) is int and value < 1:
            said = f"{_FILE} states {name} = {value}: there are no blocks whose operators could be listed"
            found.append(Anomaly(code="no_blocks", subject=f"{_FILE}#{path}", message=said))
        if isinstance(value, float) and math.isnan(value):
            nowhere.append(path.lstrip("/")[:_LONGEST])
    if nowhere:
        rest = f" and {len(nowhere) - _LISTED} more" if len(nowhere) > _LISTED else ""
        said = f"{_FILE} holds NaN, which is no number: {', '.join(nowhere[:_LISTED])}{rest}"
        found.append(Anomaly(code="not_a_number", subject=f"{_FILE}#/{nowhere[0]}", message=said))
    stated = stated_method(config)
    if stated is not None and not quantiser(stated.key):
        said = (
            f"{_FILE} names the quantisation {stated.method[:_LONGEST]!r}, for which transformers has no "
            "quantiser: which kernels it needs is not known"
        )
        found.append(Anomaly(code="unknown_quantization", subject=stated.where, message=said))
    return found


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Path and value of everything that is no mapping and no list, in order."""
    left: list[tuple[str, Any]] = [("", config)]
    while left:
        path, value = left.pop()
        if isinstance(value, Mapping):
            left += [(f"{path}/{key}", item) for key, item in reversed(list(value.items()))]
        elif isinstance(value, list):
            left += [(f"{path}/{place}", item) for place, item in reversed(list(enumerate(value)))]
        else:
            yield path, value

"""Calls out of torch's own operator tests (OpInfo), for what no model at hand calls."""

from __future__ import annotations

import importlib.util
import logging
import math
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.models.recorder import Recorder
from day0_worker.operators import resolve

from ..thresholds import PROBE_ELEMENTS

MAX_SAMPLES = 6
"""Samples that are looked at of one entry: the first ones differ most."""

_UNDECIDED = {
    torch.Tag.nondeterministic_seeded,
    torch.Tag.nondeterministic_bitwise,
    torch.Tag.dynamic_output_shape,
    torch.Tag.data_dependent_output,
}

_LOGGER = logging.getLogger("day0.coverage")


def is_installed() -> bool:
    """Whether torch's operator tests can be imported here: they need the package `expecttest`."""
    return importlib.util.find_spec("expecttest") is not None


def opinfo_calls(dtype: torch.dtype = torch.float32) -> list[OperatorCall]:
    """What torch's samples dispatch, each signature once, in the order of torch's list.

    Samples run here, on the host's CPU, for torch wrote them for it; a target sees only calls that the
    reference worker ran as well.

    Args:
        dtype: of the samples.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, OperatorCall] = {}
    for entry in op_db:
        for call in _calls_of(entry, dtype):
            if _comparable(call) and sum(map(math.prod, call.shapes)) <= PROBE_ELEMENTS:
                found.setdefault(call.signature, call)
    return list(found.values())


def _comparable(call: OperatorCall) -> bool:
    """Whether its values are decided: torch's core operators and functions of single values.

    Factorisations are right with either sign and in any order; random and sparse results have no one value.
    """
    if not call.op.startswith("aten.") or not call.shapes or "linalg" in call.op:
        return False
    tags = resolve(call.op).tags
    return (torch.Tag.core in tags or torch.Tag.pointwise in tags) and not _UNDECIDED & set(tags)


def _calls_of(entry: Any, dtype: torch.dtype) -> Iterator[OperatorCall]:
    if dtype not in entry.supported_dtypes("cpu"):
        return
    recorder = Recorder("prefill")
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(islice(entry.sample_inputs("meta", dtype, requires_grad=False), MAX_SAMPLES))
            with recorder:
                for sample in samples:
                    entry(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:  # a sample that needs real values, or a test's own helper that fails here
        _LOGGER.debug("samples of %s: %s", entry.name, error)
    yield from recorder.calls()

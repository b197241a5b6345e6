"""`day0 ops` and `day0 probe`: what a model calls, and what a target makes of it."""

from __future__ import annotations

from day0.adapters.base.operator_capture import CaptureRequest
from day0.adapters.base.progress import log_progress
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.verdict import exit_status

from .flags import RunFlags, Switch, Target, settings_of
from .operators_list import list_operators, operator_lines
from .progress_display import show_progress
from .settings import run_options
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()
_PROBE_SECONDS = 3600.0


def ops(
    model: str,
    /,
    *,
    device: str = "cpu",
    dtype: str = "",
    attn: str = "",
    experts: str = "",
    graph: Switch = False,
    flags: RunFlags = _DEFAULT,
) -> int:
    """Every operator that a model will call: dtypes, shapes, attributes, where, in which phase, how often.

    What cannot be captured stands under unresolved, with the reason; everything else is still listed, and the
    exit status is 3.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        device: Device type that the model's code is told, e.g. cuda or npu: some of it asks.
        dtype: Of weights and activations, e.g. fp16 (default: what the config declares).
        attn: Attention implementation by transformers' name (default: its own choice).
        experts: Experts implementation by transformers' name (default: its own choice).
        graph: List what an exported graph of one layer of each kind holds instead, as compilers see it.
        flags: Shared flags.
    """
    settings = settings_of(flags)
    request = CaptureRequest(
        device=device, dtype=dtype, attn=attn, experts=experts, mode="graph" if graph else "eager"
    )
    with stdout_for_data() as data:
        with show_progress():
            found = list_operators(
                model, flags.revision, RunStore(settings.store), request, progress=log_progress
            )
        if flags.json:
            write_json(data, {**found.model_dump(mode="json"), "verdict": str(found.verdict)})
        else:
            data.writelines(f"{printable(line)}\n" for line in operator_lines(found))
    return exit_status(found.verdict)


def probe(
    model: str | None = None, /, *, target: Target, refresh: Switch = False, flags: RunFlags = _DEFAULT
) -> int:
    """Try operators on a target and keep what was learnt in the run store's registry.

    Rows measured under the target's very fingerprint are not tried again, so that a probe that was stopped
    goes on where it was; rows known from a related version come first. There is an hour's time where
    --probe-budget does not say otherwise; what was learnt before an end of any kind stays.

    Args:
        model: Hub id, folder, or path of a config.json, whose operators are tried; NAME@REV pins. Left out:
            those of a seed set that most models need.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16.
        refresh: Try measured rows again too.
        flags: Shared flags.
    """
    budget = _PROBE_SECONDS if flags.probe_budget is None else flags.probe_budget
    settings = settings_of(flags, probe_budget=budget)
    with stdout_for_data() as data:
        with show_progress():
            from day0.tasks.coverage.probe import probe_target

            found = probe_target(
                model,
                TargetSpec.parse(target),
                RunStore(settings.store),
                run_options(settings),
                revision=flags.revision,
                refresh=refresh,
                progress=log_progress,
            )
        if flags.json:
            write_json(data, found.model_dump(mode="json"))
        else:
            data.writelines(f"{printable(line)}\n" for line in found.lines())
    return exit_status(found.verdict)

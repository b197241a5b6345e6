"""`day0 ops`: what a model calls."""

from __future__ import annotations

from day0.adapters.base.operator_capture import CaptureRequest
from day0.adapters.base.progress import log_progress
from day0.adapters.base.run_store import RunStore
from day0.tasks.verdict import exit_status

from .flags import RunFlags, Switch, settings_of
from .operators_list import list_operators, operator_lines
from .progress_display import show_progress
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()


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

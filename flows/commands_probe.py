"""`day0 probe`: tries operators on a target, or takes over what a support list declares of it."""

from __future__ import annotations

from pathlib import Path

from day0.adapters.base.errors import InputError
from day0.adapters.base.progress import log_progress
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.verdict import exit_status

from .declared import declare as take_over
from .flags import RunFlags, Switch, Target, settings_of
from .progress_display import show_progress
from .settings import run_options
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()
_PROBE_SECONDS = 3600.0


def probe(
    model: str | None = None,
    /,
    *,
    target: Target,
    refresh: Switch = False,
    sweep: Switch = False,
    kinds: Switch = False,
    declare: Path | None = None,
    declared_for: str = "",
    flags: RunFlags = _DEFAULT,
) -> int:
    """Try operators on a target and keep what was learnt in the run store's registry.

    Rows measured under the target's very fingerprint are not tried again, so that a probe that was stopped
    goes on where it was; rows known from a related version come first. There is an hour's time where
    --probe-budget does not say otherwise; what was learnt before an end of any kind stays.

    Args:
        model: Hub id, folder, or path of a config.json, whose operators are tried; NAME@REV pins. Left out:
            those of a seed set that most models need and, where the extra `probe` is installed, of torch's
            own operator tests.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16.
        refresh: Try measured rows again too.
        sweep: While time is left, try the same operators in the target's other dtypes and in other ranks.
        kinds: In the time that is left, compile and run one node of each of the model's kinds too, in all
            sizes, on a target that compiles; coverage then finds what it would have to wait for.
        declare: Try nothing; take over a support list (op-plugin's op_plugin_functions.yaml, or ONNX
            Runtime's OperatorKernels.md) as declared rows, which never count as measured.
        declared_for: Version that the list is read for: of torch (v2.7), or of the operator set (21).
            Default: the newest.
        flags: Shared flags.
    """
    if declare is not None:
        return _declared(model, target, declare, declared_for, flags)
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
                sweep=sweep,
                progress=log_progress,
            )
            compiled = _kinds(model, target, flags, budget - found.seconds) if kinds and model else 0
        if flags.json:
            write_json(data, {**found.model_dump(mode="json"), "kinds": compiled})
        else:
            lines = [*found.lines(), *([f"{compiled} trials of kinds of nodes"] if compiled else [])]
            data.writelines(f"{printable(line)}\n" for line in lines)
    return exit_status(found.verdict)


def _kinds(model: str, target: str, flags: RunFlags, seconds: float) -> int:
    from day0.tasks.coverage.probe_kinds import probe_kinds

    settings = settings_of(flags)
    return probe_kinds(
        model,
        flags.revision,
        TargetSpec.parse(target),
        RunStore(settings.store),
        run_options(settings),
        seconds=seconds,
        progress=log_progress,
    )


def _declared(model: str | None, target: str, path: Path, version: str, flags: RunFlags) -> int:
    if model is not None:
        raise InputError(
            "--declare takes over a whole list, so no model can be named with it",
            code="E174",
            remedy="Leave out the model, or --declare.",
        )
    found = take_over(TargetSpec.parse(target), RunStore(settings_of(flags).store), path, version)
    with stdout_for_data() as data:
        if flags.json:
            write_json(data, found.model_dump(mode="json"))
        else:
            data.writelines(f"{printable(line)}\n" for line in found.lines())
    return 0

"""`day0 adapt`: the whole methodology on one model, with the answer on one screen."""

from __future__ import annotations

from day0.adapters.base.run_store import RunStore
from day0.reports.as_json import as_json
from day0.reports.store import read_report, run_folder
from day0.tasks.verdict import exit_status

from .answer import print_answer
from .flags import RunFlags, Switch, Targets, command_text, settings_of
from .progress_display import show_progress
from .prompts_flag import AUTO, check_prompts, switches_of
from .settings import run_options
from .terminal import stdout_for_data, write_json

_DEFAULT = RunFlags()


def adapt(
    model: str,
    /,
    *,
    target: Targets,
    fresh: Switch = False,
    prompts: str = AUTO,
    flags: RunFlags = _DEFAULT,
) -> int:
    """Adapt a model to one or more targets: all stages, one report.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16; may be repeated.
        fresh: Run again whatever touches the target.
        prompts: Which shipped prompts nodes are compared on: auto, all, or names with commas (texts, padded,
            shifted, decode, window, long, image); texts always runs.
        flags: Shared flags.
    """
    from day0.tasks.job import NumericsOptions

    check_prompts(prompts)
    settings = settings_of(flags)
    switches = [*["--fresh"] * fresh, *switches_of(prompts)]
    with stdout_for_data() as data:
        with show_progress():
            from .local_run import prefect_ready
            from .run_start import check_targets, pin_model

            check_targets(target)
            name, commit = pin_model(model, flags.revision)
            with prefect_ready(settings):
                from .adapt import adapt as adapt_flow

                run = adapt_flow(
                    name,
                    target,
                    revision=commit,
                    store=settings.store,
                    options=run_options(settings, fresh=fresh, numerics=NumericsOptions(prompts=prompts)),
                    command=command_text("adapt", model, target, flags, *switches),
                )
        store = RunStore(settings.store)
        report = read_report(store, run)
        if flags.json:
            write_json(data, as_json(report))
        else:
            print_answer(data, report, store.path(f"{run_folder(run)}/report.html"))
    return exit_status(report.verdict)

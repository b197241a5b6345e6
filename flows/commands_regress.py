"""`day0 regress`: is it still as good as what was accepted?"""

from __future__ import annotations

from day0.tasks.verdict import exit_status

from .flags import RunFlags, Targets, command_text, settings_of
from .progress_display import show_progress
from .prompts_flag import AUTO, check_prompts, switches_of
from .settings import run_options
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()


def regress(model: str, /, *, target: Targets, prompts: str = AUTO, flags: RunFlags = _DEFAULT) -> int:
    """Run again and hold the result against the accepted baseline of the same model and target.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16; may be repeated.
        prompts: Which shipped prompts nodes are compared on: auto, all, or names with commas (texts, padded,
            shifted, decode, window, long, image); texts always runs.
        flags: Shared flags.
    """
    from day0.tasks.job import NumericsOptions

    check_prompts(prompts)
    settings = settings_of(flags)
    with stdout_for_data() as data:
        with show_progress():
            from .local_run import prefect_ready
            from .run_start import check_targets, pin_model

            check_targets(target)
            name, commit = pin_model(model, flags.revision)
            with prefect_ready(settings):
                from .regress import judgement_lines
                from .regress import regress as regress_flow

                outcome = regress_flow(
                    name,
                    target,
                    revision=commit,
                    store=settings.store,
                    options=run_options(settings, numerics=NumericsOptions(prompts=prompts)),
                    command=command_text("regress", model, target, flags, *switches_of(prompts)),
                )
        if flags.json:
            write_json(data, outcome)
        else:
            for judgement in outcome.targets:
                data.writelines(f"{printable(line)}\n" for line in judgement_lines(judgement))
            data.write(f"run: {outcome.run}\n")
    return exit_status(outcome.verdict)

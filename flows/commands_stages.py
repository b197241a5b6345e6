"""Single stages: `coverage`, `minimal`, `plan`, `health`; no Prefect, no report."""

from __future__ import annotations

from typing import Any

from day0.reports.as_json import record_json
from day0.tasks.verdict import exit_status

from .flags import RunFlags, Switch, Target, settings_of
from .progress_display import show_progress
from .settings import run_options
from .single_stage import run_up_to
from .stage_text import stage_lines
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()


def coverage(model: str, /, *, target: Target, fresh: Switch = False, flags: RunFlags = _DEFAULT) -> int:
    """Which of the operators that a model calls a target has, lacks or gets wrong.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16.
        fresh: Do not use stored results that touch the target.
        flags: Shared flags.
    """
    return run_stage_verb("coverage", model, target, flags, fresh=fresh)


def minimal(model: str, /, *, target: Target, fresh: Switch = False, flags: RunFlags = _DEFAULT) -> int:
    """Load and run the first layers of each kind with the real weights.

    Args:
        model: Hub id or folder; NAME@REV pins.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16.
        fresh: Do not use stored results that touch the target.
        flags: Shared flags.
    """
    return run_stage_verb("minimal", model, target, flags, fresh=fresh)


def health(model: str, /, *, target: Target, fresh: Switch = False, flags: RunFlags = _DEFAULT) -> int:
    """Climb from one device to all: known answers, collectives, batch and sequence growth.

    Args:
        model: Hub id or folder; NAME@REV pins.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16.
        fresh: Do not use stored results that touch the target.
        flags: Shared flags.
    """
    return run_stage_verb("scale", model, target, flags, fresh=fresh)


def plan(model: str, /, *, flags: RunFlags = _DEFAULT) -> int:
    """Which configuration fits on which chip; estimates.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        flags: Shared flags.
    """
    return run_stage_verb("plan", model, None, flags)


def run_stage_verb(
    stage: str, model: str, target: str | None, flags: RunFlags, *, fresh: bool = False, **more: Any
) -> int:
    """Runs one stage with those that it builds on and answers; `more` are options of that stage alone."""
    settings = settings_of(flags)
    with stdout_for_data() as data:
        with show_progress():
            record = run_up_to(
                stage,
                model,
                flags.revision,
                target,
                settings.store,
                run_options(settings, fresh=fresh, **more),
            )
        if flags.json:
            write_json(data, record_json(record))
        else:
            data.writelines(f"{printable(line)}\n" for line in stage_lines(record, settings.store))
    return exit_status(record.verdict)

"""`day0 inventory MODEL` and `day0 inventory diff A B`: what a release is, and what is new in it."""

from __future__ import annotations

from cyclopts import App

from day0.reports.as_json import record_json
from day0.tasks.verdict import exit_status

from .flags import RunFlags, settings_of
from .progress_display import show_progress
from .settings import run_options
from .single_stage import run_up_to
from .stage_text import stage_lines
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()

app = App(name="inventory", help="What a release is, from headers and config alone.")


@app.default
def inventory(model: str, /, *, flags: RunFlags = _DEFAULT) -> int:
    """What a release is, from headers and config alone.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        flags: Shared flags.
    """
    settings = settings_of(flags)
    with stdout_for_data() as data, show_progress():
        options = run_options(settings)
        record = run_up_to("inventory", model, flags.revision, None, settings.store, options)
        if flags.json:
            write_json(data, record_json(record))
        else:
            data.writelines(f"{printable(line)}\n" for line in stage_lines(record))
    return exit_status(record.verdict)

"""`day0 ops` and `day0 probe`: what a model calls, and what a target makes of it."""

from __future__ import annotations

from day0.adapters.base.run_store import RunStore

from .flags import RunFlags, settings_of
from .operators_list import list_operators, operator_lines
from .progress_display import show_progress
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()


def ops(model: str, /, *, flags: RunFlags = _DEFAULT) -> int:
    """Every operator that a model will call: dtypes, shapes, attributes, where, in which phase, how often.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        flags: Shared flags.
    """
    settings = settings_of(flags)
    with stdout_for_data() as data, show_progress():
        found = list_operators(model, flags.revision, RunStore(settings.store))
        if flags.json:
            write_json(data, found)
        else:
            data.writelines(f"{printable(line)}\n" for line in operator_lines(found))
    return 0

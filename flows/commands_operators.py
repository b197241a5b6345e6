"""`day0 ops` and `day0 probe`: what a model calls, and what a target makes of it."""

from __future__ import annotations

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.reports.as_json import record_json
from day0.tasks.verdict import exit_status

from .flags import RunFlags, Target, settings_of
from .operators_list import list_operators, operator_lines
from .progress_display import show_progress
from .settings import run_options
from .single_stage import run_up_to
from .stage_text import stage_lines
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = RunFlags()
_PROBE_SECONDS = 3600.0


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


def probe(model: str, /, *, target: Target, flags: RunFlags = _DEFAULT) -> int:
    """Try a model's operators on a target and keep what was learnt in the run store's registry.

    Operators that the registry knows under the target's fingerprint are not tried again. There is an hour's
    time where --probe-budget does not say otherwise; what was learnt before an end of any kind stays.

    Args:
        model: Hub id, folder, or path of a config.json, whose operators are tried; NAME@REV pins.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16.
        flags: Shared flags.
    """
    budget = _PROBE_SECONDS if flags.probe_budget is None else flags.probe_budget
    settings = settings_of(flags, probe_budget=budget)
    name = TargetSpec.parse(target).registry_name
    with stdout_for_data() as data, show_progress():
        from day0.adapters.registries.files import store_path

        options = run_options(settings)
        record = run_up_to("coverage", model, flags.revision, target, settings.store, options)
        place = RunStore(settings.store).path(store_path(name))
        if flags.json:
            write_json(data, {**record_json(record), "registry": place})
        else:
            data.writelines(f"{printable(line)}\n" for line in stage_lines(record))
            data.write(f"registry: {printable(place)}\n")
    return exit_status(record.verdict)

"""`day0 inventory diff A B`: what is new in a release."""

from __future__ import annotations

from day0.tasks.inventory.structural_diff import structural_diff

from .flags import OptionalSwitch, StoreFlags, Switch, settings_of
from .inventory_diff_text import diff_text
from .inventory_source import inventory_of
from .progress_display import show_progress
from .settings import run_options
from .terminal import printable, stdout_for_data, write_json
from .text_layout import columns_of

_STORE = StoreFlags()


def diff(
    before: str,
    after: str,
    /,
    *,
    fail_on_change: Switch = False,
    offline: OptionalSwitch = None,
    flags: StoreFlags = _STORE,
) -> int:
    """What is structurally new in one release against another.

    Args:
        before: Hub id, folder, s3:// address, path of a bare config.json, or a file that inventory --json
            left; NAME@REV pins.
        after: The same of the later release.
        fail_on_change: Exit with 1 where anything changed.
        offline: Use only what the hub's cache already has.
        flags: Shared flags.
    """
    settings = settings_of(flags, offline=offline)
    with stdout_for_data() as data:
        with show_progress():
            options = run_options(settings)
            records = [inventory_of(name, settings.store, options) for name in (before, after)]
            found = structural_diff(*records)
        if flags.json:
            write_json(data, found)
        else:
            data.writelines(f"{printable(line)}\n" for line in diff_text(found, columns_of(data)))
    return 1 if fail_on_change and not found.same else 0

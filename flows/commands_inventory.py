"""`day0 inventory MODEL` and `day0 inventory diff A B`: what a release is, and what is new in it."""

from __future__ import annotations

from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, TextIO

from cyclopts import App, Parameter

from day0.adapters.base.errors import InputError
from day0.reports.as_json import record_json
from day0.tasks.inventory.distribution_csv import distribution_csv
from day0.tasks.inventory.layouts import parse_layout
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.verdict import exit_status

from .flags import RunFlags, Switch, settings_of
from .inventory_text import inventory_text
from .progress_display import show_progress
from .settings import run_options
from .single_stage import run_up_to
from .staging_run import stage_release
from .terminal import printable, say, stdout_for_data, write_json

_DEFAULT = RunFlags()

Layouts = Annotated[list[str], Parameter(name="--layout", negative="")]
"""`--layout`, repeatable."""

app = App(name="inventory", help="What a release is, from headers and config alone.")


@app.default
def inventory(
    model: str,
    /,
    *,
    layout: Layouts | None = None,
    csv: str | None = None,
    verify: Switch = False,
    stage: Switch = False,
    flags: RunFlags = _DEFAULT,
) -> int:
    """What a release is, from headers and config alone.

    Args:
        model: Hub id, folder, or path of a config.json; NAME@REV pins.
        layout: Tell memory per rank for this layout, e.g. tp=8,ep=8,pp=2,dp=1,sp; repeatable.
        csv: Write the table of layers by role to this file; - for standard output.
        verify: Read every byte of the weights: hashes, NaN, infinity, zeros. Fetches a remote release.
        stage: Then fetch the weights, those of the minimal run first.
        flags: Shared flags.
    """
    settings = settings_of(flags)
    layouts = tuple(dict.fromkeys(parse_layout(text).text for text in layout or ()))
    if csv == "-" and flags.json:
        raise InputError(
            "--json and --csv - both claim standard output",
            code="E166",
            remedy="Give --csv a file, or leave one of the two out.",
        )
    with stdout_for_data() as data, show_progress():
        options = run_options(settings, layouts=layouts, verify=verify)
        record = run_up_to("inventory", model, flags.revision, None, settings.store, options)
        assert isinstance(record, InventoryRecord)
        if csv is not None:
            _write_csv(data, csv, record)
        if flags.json:
            write_json(data, record_json(record))
        elif csv != "-":
            width = get_terminal_size().columns if data.isatty() else 0
            data.writelines(f"{printable(line)}\n" for line in inventory_text(record, width))
        data.flush()
        if stage:
            say(stage_release(model, record))
    return exit_status(record.verdict)


def _write_csv(data: TextIO, place: str, record: InventoryRecord) -> None:
    assert record.facts.distribution is not None  # every record of this version has one
    text = distribution_csv(record.facts.distribution)
    if place == "-":
        data.write(text)
        return
    try:
        Path(place).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(
            f"the table cannot be written to {place}: {error.strerror}",
            code="E167",
            remedy="Name a file in a folder that is there and may be written to.",
        ) from error

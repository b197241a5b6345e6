"""`day0 inventory MODEL`: what a release is."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, TextIO

from cyclopts import App, Parameter

from day0.adapters.base.errors import Day0Error, InputError
from day0.reports.as_json import record_json
from day0.tasks.inventory.distribution_csv import distribution_csv
from day0.tasks.inventory.layouts import parse_layout
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.verdict import exit_status

from .flags import SourceFlags, Switch, settings_of
from .inventory_text import inventory_text
from .progress_display import show_progress
from .settings import run_options
from .single_stage import run_up_to
from .terminal import printable, say, stdout_for_data, write_json
from .text_layout import columns_of

_DEFAULT = SourceFlags()

Layouts = Annotated[list[str], Parameter(name="--layout", negative="")]
"""`--layout`, repeatable."""

CsvPlace = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A file, or `-`."""

app = App(name="inventory", help="What a release is, from headers and config alone.")
app.command(
    "day0.flows.commands_inventory_diff:diff",
    name="diff",
    help="What is structurally new in one release against another.",
)


@app.default
def inventory(
    model: str,
    /,
    *,
    layout: Layouts | None = None,
    csv: CsvPlace | None = None,
    expected: Switch = False,
    verify: Switch = False,
    stage: Switch = False,
    flags: SourceFlags = _DEFAULT,
) -> int:
    """What a release is, from headers and config alone.

    Args:
        model: Hub id, folder, s3:// address, or path of a bare config.json; NAME@REV pins.
        layout: Tell memory per rank for this layout, e.g. tp=8,ep=8,pp=2,dp=1,sp; repeatable.
        csv: Write the table of layers by role to this file; - for standard output.
        expected: Hold every tensor against those that the config implies; builds the model without weights.
        verify: Read every byte of the weights: hashes, NaN, infinity, zeros. Fetches a remote release.
        stage: Then fetch the weights, those of the minimal run first.
        flags: Shared flags.
    """
    settings = settings_of(flags)
    layouts = tuple(dict.fromkeys(parse_layout(text).text for text in layout or ()))
    _check_csv(csv, flags.json)
    # A hub takes as long to answer the first questions as the stage's modules take to load.
    Thread(target=import_module, args=("day0.tasks.inventory.take",), name="loading").start()
    with stdout_for_data() as data:
        with show_progress():
            options = run_options(settings, layouts=layouts, expected=expected, verify=verify)
            record = run_up_to("inventory", model, flags.revision, None, settings.store, options)
        assert isinstance(record, InventoryRecord)
        if csv is not None:
            _write_csv(data, csv, record)
        if flags.json and not stage:
            write_json(data, record_json(record))
        elif not flags.json and csv != "-":
            lines = inventory_text(record, columns_of(data))
            data.writelines(f"{printable(line)}\n" for line in lines)
        data.flush()
        if stage:
            record = _stage(data, model, record, json=flags.json)
    return exit_status(record.verdict)


def _stage(data: TextIO, model: str, record: InventoryRecord, *, json: bool) -> InventoryRecord:
    """Stages; the record with what became of it, which where it failed is a finding of its own."""
    from .staging_run import stage_release, with_failure  # only here: most inventories stage nothing

    told: Mapping[str, Any]
    try:
        with show_progress():
            staging = stage_release(model, record)
        told = staging.values
        say(staging.text)
    except Day0Error as error:
        told = {"state": "failed", "code": error.code, "problem": error.message}
        record = with_failure(record, error)
        say(str(error))
    if json:
        write_json(data, {**record_json(record), "staging": told})
    return record


def _check_csv(place: str | None, json: bool) -> None:
    if place == "-" and json:
        raise InputError(
            "--json and --csv - both claim standard output",
            code="E166",
            remedy="Give --csv a file, or leave one of the two out.",
        )
    if place is not None and (not place or place.startswith("--")):
        raise InputError(
            f"--csv is followed by {place!r}, which is no file",
            code="E166",
            remedy="Write --csv FILE or --csv -.",
        )


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

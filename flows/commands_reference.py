"""`day0 reference capture`: what a comparison needs of the reference, in one file for machines without it."""

from __future__ import annotations

import os
from pathlib import Path

from cyclopts import App

from day0.adapters.base.errors import InputError

from .flags import RunFlags, settings_of
from .progress_display import show_progress
from .terminal import stdout_for_data, write_json

app = App(name="reference", help="The reference's outputs in a file, for machines on which it cannot run.")
_DEFAULT = RunFlags()


@app.command
def capture(
    model: str,
    /,
    *,
    out: str,
    dtype: str = "",
    attn: str = "",
    prompts: str = "auto",
    flags: RunFlags = _DEFAULT,
) -> int:
    """Run the reference over the whole model and write what it gave.

    Args:
        model: Hub id or folder; NAME@REV pins.
        out: File to write.
        dtype: Precision of the targets that will be compared (default: the release's own).
        attn: Attention of these targets, where they name one (eager or sdpa).
        prompts: Which shipped prompts run: auto, all, or names with commas; texts always runs.
        flags: Shared flags.
    """
    settings = settings_of(flags)
    path = Path(out).expanduser()
    _refuse_unwritable(path)
    with stdout_for_data() as data:
        with show_progress():
            from day0.tasks.numerics.bundles.bundle_task import capture_release

            from .settings import run_options

            head = capture_release(
                model, flags.revision, settings.store, run_options(settings), path, dtype, attn, prompts
            )
        size = path.stat().st_size
        if flags.json:
            write_json(
                data,
                {
                    "file": str(path),
                    "bytes": size,
                    "model": head.model,
                    "reference": head.reference,
                    "dtype": head.computes_in,
                    "calls": len(head.calls),
                    "prompts": [step.name for step in head.passes],
                    "left_out": dict(head.left_out),
                },
            )
        else:
            data.write(
                f"{path}: {head.reference} for targets in {head.computes_in}, {len(head.calls)} calls, "
            )
            data.write(f"{size / 2**20:.1f} MiB\n")
    return 0


def _refuse_unwritable(path: Path) -> None:
    """Refuses, before the walk, a path at which no file can appear after it.

    Raises:
        InputError: E194, it is a folder, in none, or in one that may not be written to.
    """
    folder = path.parent
    if path.is_dir():
        why, remedy = "it is a folder", "Name a file, e.g. one in it."
    elif not folder.is_dir():
        why, remedy = f"there is no folder {folder}", "Make the folder, or name another file."
    elif not os.access(folder, os.W_OK | os.X_OK):
        why, remedy = f"the folder {folder} may not be written to", "Name a file in another folder."
    else:
        return
    raise InputError(f"{path} cannot be written: {why}", code="E194", remedy=remedy)

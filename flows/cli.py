"""The command line `day0`: verbs by name, loaded when they are called, and what every error turns into."""

from __future__ import annotations

import difflib
import gc
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from cyclopts import App, CycloptsError, UnknownCommandError

from day0.adapters.base.errors import Day0Error

from .interrupts import INTERRUPTED, ends_on_signals
from .terminal import say

_COLLECTOR = (100_000, 50, 50)
"""Thresholds of Python's cycle collector. A release makes half a million small values, none in a cycle; at
Python's own thresholds looking for one takes a quarter of the time."""

UNUSABLE = 2
"""Exit status where the command or its input cannot be used and no record was made."""

_VERBS = (
    ("adapt", "commands_adapt:adapt", "Adapt a model to one or more targets: all stages, one report."),
    ("inventory", "commands_inventory:app", "What a release is, from headers and config alone."),
    ("ops", "commands_operators:ops", "Every operator that a model will call."),
    ("coverage", "commands_stages:coverage", "Which operators of a model a target has, lacks or gets wrong."),
    ("probe", "commands_probe:probe", "Try operators on a target and keep what was learnt."),
    ("minimal", "commands_stages:minimal", "Load and run the first layers of each kind."),
    ("compare", "commands_compare:compare", "Hold every node against the reference."),
    ("plan", "commands_stages:plan", "Which configuration fits on which chip (estimates)."),
    ("health", "commands_stages:health", "Climb from one device to all: compute, collectives, growth."),
    ("report", "commands_reports:report", "Draw a run's page again and say where it lies."),
    ("runs", "commands_reports:runs", "List all runs."),
    ("diff", "commands_reports:diff", "What changed between two runs."),
    ("regress", "commands_regress:regress", "Run again and hold the result against the accepted baseline."),
    ("waive", "commands_accept:waive", "Accept a finding, with an owner, a reason and a last day."),
    ("doctor", "commands_doctor:doctor", "Look whether this machine is ready."),
)

_EPILOGUE = (
    "Exit status: 0 pass or warn; 1 fail, or a regression; 2 the command or its input cannot be used; "
    "3 a record was made but undecided; 130 interrupted."
)


def build_app() -> App:
    """The command tree; no verb's module is imported before the verb is called."""
    app = App(
        name="day0",
        help="Does this open-weight model work on your stack? Evidence within hours of the release.",
        help_epilogue=_EPILOGUE,
        version=lambda: metadata.version("day0"),
    )
    for name, place, about in _VERBS:
        app.command(f"day0.flows.{place}", name=name, help=about)
    baseline = App(name="baseline", help="The accepted run that re-runs are held against.")
    baseline.command("day0.flows.commands_accept:accept", name="accept", help="Accept a run as the baseline.")
    baseline.command("day0.flows.commands_accept:show", name="show", help="Show what is accepted.")
    app.command(baseline)
    app.command(
        "day0.flows.commands_reference:app", name="reference", help="The reference's outputs in a file."
    )
    return app


app = build_app()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status.

    Args:
        arguments: of the command line; None: this process's own.
    """
    gc.set_threshold(*_COLLECTOR)
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with ends_on_signals():
            status = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
            return status if isinstance(status, int) else 0
    except UnknownCommandError:
        say(f"day0: there is no verb {' '.join(tokens[:2])!r}.{_near(tokens[0])} Try: day0 --help")
        return UNUSABLE
    except CycloptsError as error:
        say(f"day0: {' '.join(str(error).split())} Try: day0 {_verb(tokens)}--help")
        return UNUSABLE
    except Day0Error as error:
        say(f"day0: {error}")
        return UNUSABLE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away; Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return INTERRUPTED
    except Exception as error:  # the last boundary: a person reads one sentence, the traceback goes to a file
        what = f"day0: unforeseen {type(error).__name__} in `day0 {shlex.join(tokens)}` [E900]."
        say(f"{what} Please report it with {_keep_traceback()}")
        return UNUSABLE


def _verb(tokens: Sequence[str]) -> str:
    return f"{tokens[0]} " if tokens and not tokens[0].startswith("-") else ""


def _near(word: str) -> str:
    near = difflib.get_close_matches(word, [name for name, *_ in _VERBS])
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _keep_traceback() -> Path:
    from .settings import Settings

    try:
        folder = Path(Settings().store) / "logs"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError):
        folder = Path(tempfile.gettempdir())
    path = folder / f"error-{os.getpid()}.txt"
    path.write_text(traceback.format_exc(), encoding="utf-8")
    return path.absolute()


if __name__ == "__main__":
    sys.exit(main())

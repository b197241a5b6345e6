"""The suite that a vendor runs on its own target: `python -m day0.testing.conformance TARGET`.

In a test suite of one's own:

    import pytest
    from day0.testing.conformance import CHECKS, open_subject

    @pytest.fixture(scope="module")
    def subject():
        with open_subject("mystack@mychip/bf16") as subject:
            yield subject

    @pytest.mark.parametrize(("capability", "check"), CHECKS)
    def test_conformance(subject, capability, check):
        if capability and capability not in subject.target.describe().capabilities:
            pytest.skip(f"{capability} is not claimed")
        check(subject)
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from day0.adapters.base.errors import Day0Error, InputError
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.target import WorkerTarget

from .conformance_checks import CHECKS as OTHERS
from .conformance_checks import Check, Subject
from .training_checks import observes_what_it_runs, trains

CHECKS: Sequence[tuple[str, Check]] = (
    *OTHERS[:-1],
    ("observe", observes_what_it_runs),
    ("grad", trains),
    OTHERS[-1],
)
"""Capability that a check needs (empty: none) and the check, in the order in which they run; the last one
ends the worker."""

__all__ = ["CHECKS", "Check", "Result", "Subject", "main", "open_subject", "run_conformance"]


@dataclass(frozen=True)
class Result:
    """One check's outcome: `passed`, `failed` or `not claimed`; what was met; seconds."""

    name: str
    outcome: str
    detail: str
    seconds: float


@contextlib.contextmanager
def open_subject(target: str, *, command: Sequence[str] = (), timeout: float = 300.0) -> Iterator[Subject]:
    """The target, opened, with a folder that is removed afterwards.

    Args:
        target: e.g. `eager@cpu/bf16`.
        command: argv that ends in another environment's Python; empty: this Python.
        timeout: seconds that one call may take.

    Raises:
        InputError: the target cannot be named so.
    """
    with (
        tempfile.TemporaryDirectory(prefix="day0-conformance-") as folder,
        open_target(TargetSpec.parse(target), timeout=timeout, command=command) as opened,
    ):
        if not isinstance(opened, WorkerTarget):
            raise InputError(f"{target} is a server, no stack that a worker holds", code="E185")
        yield Subject(opened, Path(folder))


def run_conformance(subject: Subject) -> Iterator[Result]:
    """Runs every check whose capability is claimed, one after the other, and yields each outcome."""
    for capability, check in CHECKS:
        began = time.monotonic()
        outcome, detail = "passed", ""
        try:
            if capability and capability not in subject.target.describe().capabilities:
                outcome, detail = "not claimed", capability
            else:
                check(subject)
        except (AssertionError, Day0Error) as failure:
            outcome, detail = "failed", str(failure)
        yield Result(check.__name__, outcome, detail, time.monotonic() - began)


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0: every claimed check passed, 1: one failed, 2: the target cannot be opened."""
    parser = argparse.ArgumentParser(
        prog="python -m day0.testing.conformance", description="Holds a target against its contract."
    )
    parser.add_argument("target", help="e.g. eager@cpu/bf16")
    parser.add_argument("--command", default="", help="argv that ends in another environment's Python")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one call may take")
    asked = parser.parse_args(words)
    failed = 0
    try:
        with open_subject(asked.target, command=shlex.split(asked.command), timeout=asked.timeout) as subject:
            for result in run_conformance(subject):
                failed += result.outcome == "failed"
                tail = f"  {result.detail}" if result.detail else ""
                print(f"{result.outcome:12}{result.seconds:7.1f} s  {result.name}{tail}", flush=True)
    except Day0Error as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

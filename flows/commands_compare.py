"""`day0 compare`: every node of a model on a target against the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from day0.adapters.base.errors import InputError

from .commands_stages import run_stage_verb
from .flags import RunFlags, Switch, Target
from .prompts_flag import AUTO, check_prompts

_DEFAULT = RunFlags()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CompareFlags:
    """What is done beyond the comparison itself.

    Attributes:
        prompts: Which shipped prompts run: auto, all, or names with commas (texts, padded, shifted, decode,
            window, long, image); texts always runs (default: auto).
        self_test: Put canonical bugs into the target and into the reading of the checkpoint, and show which
            are found.
        sweep_precision: Lower precisions to try on each role, e.g. bf16,fp8,int8.
        train: Compare one step of loss, backward and optimiser on the first layers.
        task: Let both sides answer the shipped items.
        samples: JSON list of {"prompt", "output"} that the release's publisher gives.
        reference: File written by `day0 reference capture` that stands for the reference.
        spread: Compare nodes side by side first: threads:N, processes:N or dask:SCHEDULER.
    """

    prompts: str | None = None
    self_test: Switch = False
    sweep_precision: str = ""
    train: Switch = False
    task: Switch = False
    samples: str = ""
    reference: str = ""
    spread: str = ""


_NOTHING_MORE = CompareFlags()


def compare(
    model: str,
    /,
    *,
    target: Target,
    fresh: Switch = False,
    more: CompareFlags = _NOTHING_MORE,
    flags: RunFlags = _DEFAULT,
) -> int:
    """Hold every node against the reference.

    Args:
        model: Hub id or folder; NAME@REV pins.
        target: STACK@DEVICE[:N][/DTYPE][?key=value&...], e.g. eager@cpu/bf16.
        fresh: Do not use stored results that touch the target.
        more: What is done beyond the comparison.
        flags: Shared flags.
    """
    from day0.tasks.job import NumericsOptions

    prompts = AUTO if more.prompts is None else more.prompts
    _check(more, prompts)
    if more.reference:
        _refuse_servers(target)
    asked = NumericsOptions(
        prompts=prompts,
        self_test=more.self_test,
        sweep=more.sweep_precision,
        train=more.train,
        task=more.task,
        samples=_path(more.samples, "--samples"),
        reference=_path(more.reference, "--reference"),
        spread=more.spread,
    )
    return run_stage_verb("numerics", model, target, flags, fresh=fresh, numerics=asked)


def _check(more: CompareFlags, prompts: str) -> None:
    from day0.tasks.spreading import parse_spread

    _refuse_what_needs_the_reference(more)
    check_prompts(prompts)
    parse_spread(more.spread)
    # Both are read again where they are used: what is wrong with them is not told after hours of walking.
    if more.sweep_precision:
        _check_precisions(more.sweep_precision)
    if more.samples:
        from day0.tasks.numerics.trust.samples import load_samples

        load_samples(Path(_path(more.samples, "--samples")))


def _refuse_what_needs_the_reference(more: CompareFlags) -> None:
    """Refuses flags that a captured reference cannot follow, for it is not there to be run.

    Raises:
        InputError: E199, one is given.
    """
    given = {
        "--prompts": more.prompts is not None,
        "--self-test": more.self_test,
        "--sweep-precision": more.sweep_precision,
        "--train": more.train,
        "--task": more.task,
        "--samples": more.samples,
        "--spread": more.spread,
    }
    named = [flag for flag, is_given in given.items() if is_given]
    if more.reference and named:
        raise InputError(
            f"{', '.join(named)} cannot be given with --reference: a captured reference does not run again, "
            "and the prompts that it was captured on are those that are compared",
            code="E199",
            remedy="Leave out one or the other; prompts are chosen by day0 reference capture --prompts.",
        )


def _refuse_servers(target: str) -> None:
    """Refuses to hold a server against a captured reference.

    Raises:
        InputError: E199, the target is one; E110, it does not follow the grammar.
    """
    from day0.adapters.base.target_spec import TargetSpec
    from day0.adapters.targets.endpoint import STACK

    if TargetSpec.parse(target).stack == STACK:
        raise InputError(
            "--reference holds what the nodes of a model give, and a server shows none of its nodes",
            code="E199",
            remedy="Leave out --reference: servers are compared by their tokens and log-probabilities.",
        )


def _check_precisions(text: str) -> None:
    from day0.tasks.numerics.precision.lowerings import lowerings_of, precisions

    if not lowerings_of(precisions(text)):
        raise InputError(
            f"--sweep-precision {text!r} names no precision",
            code="E464",
            remedy="Name some with commas, e.g. bf16,fp8,int8.",
        )


def _path(name: str, flag: str) -> str:
    if not name:
        return ""
    path = Path(name).expanduser()
    if path.is_dir():
        raise InputError(
            f"{flag} {name}: it is a folder, not a file", code="E190", remedy="Name a file, e.g. one in it."
        )
    if not path.is_file():
        raise InputError(f"{flag} {name}: there is no such file", code="E190", remedy="Check the path.")
    return str(path.resolve())

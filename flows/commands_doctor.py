"""`day0 doctor`: is this machine ready?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from day0.tasks.verdict import exit_status, worst

from .checkup import check_up
from .flags import StoreFlags, settings_of
from .terminal import printable, stdout_for_data, write_json

_DEFAULT = StoreFlags()


def doctor(
    *,
    target: Annotated[tuple[str, ...], Parameter(name="--target", negative="")] = (),
    flags: StoreFlags = _DEFAULT,
) -> int:
    """Look whether this machine is ready: versions, run store, disk, Prefect, and each target.

    Args:
        target: Ask this one, e.g. eager@cuda; may be repeated. Every installed stack on the CPU where left
            out.
        flags: Shared flags.
    """
    settings = settings_of(flags)
    with stdout_for_data() as data:
        found = check_up(settings, target)
        verdict = worst(each.verdict for each in found)
        if flags.json:
            checks = [each.model_dump(mode="json") for each in found]
            write_json(data, {"verdict": verdict.value, "checks": checks})
        else:
            width = max(len(each.subject) for each in found)
            data.writelines(
                f"{each.verdict.value:<5} {each.subject:<{width}}  {printable(each.detail)}\n"
                for each in found
            )
    return exit_status(verdict)

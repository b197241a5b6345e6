"""Flags that several verbs share; one that is not given leaves the setting as it is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from cyclopts import Parameter

from day0.adapters.base.errors import InputError

from .settings import Settings, load_settings

Switch = Annotated[bool, Parameter(negative="", show_default=False)]
OptionalSwitch = Annotated[bool | None, Parameter(negative="", show_default=False)]

Targets = Annotated[list[str], Parameter(name="--target", negative="")]
"""`--target`, repeatable."""

Target = Annotated[str, Parameter(name="--target")]
"""`--target`, exactly one."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoreFlags:
    """Where records lie and how to answer.

    Attributes:
        store: Folder or fsspec URL for records, runs and baselines (default: .day0).
        json: Strict JSON on standard output and nothing else there.
    """

    store: str | None = None
    json: Switch = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SourceFlags(StoreFlags):
    """What a verb needs that reads a release and starts no target.

    Attributes:
        store: Folder or fsspec URL for records, runs and baselines (default: .day0).
        json: Strict JSON on standard output and nothing else there.
        revision: Commit, tag or branch; the same as MODEL@REV.
        offline: Use only what the hub's cache already has.
    """

    revision: str | None = None
    offline: OptionalSwitch = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFlags(StoreFlags):
    """How a run is done.

    Attributes:
        store: Folder or fsspec URL for records, runs and baselines (default: .day0).
        json: Strict JSON on standard output and nothing else there.
        revision: Commit, tag or branch; the same as MODEL@REV.
        memory: Size at which a worker is stopped (default: 8GiB).
        timeout: Seconds that one call to a worker may take (default: 300).
        probe_budget: Seconds for trying operators and kinds of nodes (default: 60; probe: 3600).
        worker_command: Starts the Python in which targets run, e.g. "docker exec -i vendor python".
        prompt: What reference and target continue.
        offline: Use only what the hub's cache already has.
        trust_remote_code: Run code of the release. Not supported in this version.
    """

    revision: str | None = None
    memory: str | None = None
    timeout: float | None = None
    probe_budget: float | None = None
    worker_command: str | None = None
    prompt: str | None = None
    offline: OptionalSwitch = None
    trust_remote_code: Switch = False


def command_text(verb: str, model: str, targets: Sequence[str], flags: RunFlags, *switches: str) -> str:
    """The command that does the same again, for the report; what is at its default is left out."""
    words = ["day0", verb, model, *switches]
    words += [part for target in targets for part in ("--target", target)]
    for field in fields(flags):
        value = getattr(flags, field.name)
        if value is not None and value is not False and field.name not in ("json", "trust_remote_code"):
            name = f"--{field.name.replace('_', '-')}"
            words += [name] if value is True else [name, str(value)]
    return shlex.join(words)


_NO_SETTINGS = {"json", "revision", "trust_remote_code"}


def settings_of(flags: StoreFlags, **more: Any) -> Settings:
    """The settings in force, flags first.

    Raises:
        InputError: see `load_settings`; E152 for a run that asks for remote code.
    """
    if isinstance(flags, RunFlags) and flags.trust_remote_code:
        raise InputError(
            "this version never runs code of a release, so --trust-remote-code cannot be honoured",
            code="E152",
            remedy="Leave the flag out: what needs no such code is answered, the rest is shown as blocked.",
        )
    given: Mapping[str, Any] = {field.name: getattr(flags, field.name) for field in fields(flags)}
    return load_settings(
        {name: value for name, value in {**given, **more}.items() if name not in _NO_SETTINGS}
    )

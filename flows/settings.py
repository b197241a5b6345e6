"""Settings: flags, then `DAY0_*`, then `day0.toml` in the current folder, then the defaults."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ByteSize, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from day0.adapters.base.errors import InputError
from day0.adapters.sources.hub_settings import go_offline
from day0.tasks.job import RunOptions

FILE = "day0.toml"
PREFIX = "DAY0_"


class Settings(BaseSettings):
    """Everything a person may set once and for all.

    Attributes:
        store: folder or fsspec URL in which records, runs and baselines lie.
        probe_budget: seconds that coverage may spend on probing operators nobody has tried.
        memory: bytes (`8GiB`) at which a worker, with all its children, is stopped.
        timeout: seconds that one call to a worker may take.
        worker_command: argv that starts the Python in which the target runs; empty: this Python.
        prompt: continued by reference and target.
        runner: what carries Prefect's tasks: `threads`, or `dask` with the extra of that name.
        dask_address: scheduler of a Dask cluster that is there already; empty: two processes of this machine.
        report_url: of a site that serves the run store; Prefect's link to the report then leads there.
        offline: whether only what the hub's cache already has may be used.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, toml_file=FILE, extra="forbid", frozen=True)

    store: str = ".day0"
    probe_budget: float = Field(default=60.0, ge=0)
    memory: ByteSize = Field(default=ByteSize(8 * 2**30), gt=0)
    timeout: float = Field(default=300.0, gt=0)
    worker_command: Annotated[tuple[str, ...], NoDecode] = ()
    prompt: str = "The capital of France is"
    runner: Literal["threads", "dask"] = "threads"
    dask_address: str = ""
    offline: bool = False
    report_url: str = ""

    @field_validator("worker_command", mode="before")
    @classmethod
    def _split(cls, value: str | Sequence[str]) -> Sequence[str]:
        return shlex.split(value) if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, file, in this order."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(flags: Mapping[str, Any]) -> Settings:
    """The settings in force.

    Args:
        flags: what stood on the command line; None means that the flag was not given.

    Raises:
        InputError: E150 for an unknown key or a value that cannot be read, E151 for a file that is not TOML.
    """
    _refuse_unknown_environment()
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, Settings.model_fields, n=1)
            raise InputError(
                f"{FILE} has {key!r}, which is no setting of Day0",
                code="E150",
                remedy=f"Did you mean {near[0]}?"
                if near
                else f"Known are {', '.join(Settings.model_fields)}.",
            ) from error
        size = first["type"].startswith("byte_size")
        why = "a size is a number and a unit, e.g. 8GiB" if size else first["msg"]
        raise InputError(
            f"setting {key!r} cannot be used: {why} (given: {first['input']!r})",
            code="E150",
            remedy=f"Correct it on the command line, in {PREFIX}{key.upper()} or in {FILE}.",
        ) from error
    except ValueError as error:
        raise InputError(
            f"settings cannot be read from {Path(FILE).absolute()}: {error}",
            code="E151",
            remedy='Write it as TOML, e.g. store = ".day0".',
        ) from error
    if settings.offline:
        go_offline()
    return settings


def run_options(settings: Settings, *, fresh: bool = False, **more: Any) -> RunOptions:
    """The part of the settings that changes what is computed; `more` are flags of one verb alone."""
    return RunOptions(
        probe_budget=settings.probe_budget,
        memory_limit=int(settings.memory),
        node_timeout=settings.timeout,
        prompt=settings.prompt,
        worker_command=settings.worker_command,
        fresh=fresh,
        **more,
    )


def _refuse_unknown_environment() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            raise InputError(
                f"environment variable {name} is no setting of Day0",
                code="E150",
                remedy=f"Known are {', '.join(sorted(known))}.",
            )

"""Prefect's settings, found and completed before Prefect is imported (which takes 3 s and fixes them).

`[tool.prefect]` in pyproject.toml counts only in the folder of that file; `day0` has to work from any folder.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

# A first start migrates a new database: 23 s on an idle machine, up to 107 s on a loaded one (measured);
# Prefect's own limit is 20 s.
STARTUP_SECONDS = 180

_DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(STARTUP_SECONDS),
    "PREFECT_LOGGING_EXTRA_LOGGERS": "day0",
    # Lines before and after the flow have no run that they could be sent to.
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "DO_NOT_TRACK": "1",
}
# The command line shows progress itself; Prefect's own lines go to its API only.
_QUIET = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL"}


class PrefectPlace(NamedTuple):
    """Where Prefect would run.

    Attributes:
        home: its folder.
        profile: the active profile's name; empty where there is none.
        api_url: of the server; empty: the embedded one.
        origin: which file or variable said so.
    """

    home: Path
    profile: str
    api_url: str
    origin: str


def set_prefect_defaults(*, quiet: bool) -> None:
    """Puts what Day0 needs into the environment; what the person has set there stays.

    Args:
        quiet: keep Prefect's own lines off the terminal.
    """
    for name, value in (_DEFAULTS | (_QUIET if quiet else {})).items():
        os.environ.setdefault(name, value)


def find_prefect() -> PrefectPlace:
    """Home, profile and server, read where Prefect reads them, in its order, without importing it."""
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles_path = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml").expanduser()
    profiles = _toml(profiles_path)
    profile = os.environ.get("PREFECT_PROFILE") or str(profiles.get("active") or "")
    chosen = _mapping(_mapping(profiles.get("profiles")).get(profile))
    candidates = (
        (os.environ.get("PREFECT_API_URL"), "PREFECT_API_URL"),
        (_dotenv("PREFECT_API_URL"), ".env"),
        (_mapping(_toml(Path("prefect.toml")).get("api")).get("url"), "prefect.toml"),
        (_pyproject_url(), "pyproject.toml"),
        (chosen.get("PREFECT_API_URL"), str(profiles_path)),
    )
    url, origin = next(((str(url), origin) for url, origin in candidates if url), ("", "default"))
    return PrefectPlace(home, profile if chosen else "", url, origin)


def _pyproject_url() -> Any:
    tool = _mapping(_toml(Path("pyproject.toml")).get("tool"))
    return _mapping(_mapping(tool.get("prefect")).get("api")).get("url")


def _dotenv(name: str) -> str | None:
    try:
        lines = Path(".env").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        key, separator, value = line.partition("=")
        if separator and key.strip().removeprefix("export ").strip() == name:
            return value.strip().strip("'\"")
    return None


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

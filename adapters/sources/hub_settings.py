"""Where the hub is, where its cache lies and who we are: by the rules that huggingface_hub documents.

Its own constants are read once, at import, and its token helper imports an HTTP client; these are read when
they are needed, and the helper is asked only for the kinds of token that need it.
"""

from __future__ import annotations

import os
from pathlib import Path

ENDPOINT = "https://huggingface.co"
MAIN = "main"
_BY_SETTING: set[str] = set()  # variables that Day0 itself set
_YES = ("1", "ON", "YES", "TRUE")


def endpoint() -> str:
    """HF_ENDPOINT, or the public hub."""
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def home() -> Path:
    """HF_HOME, else `huggingface` in the user's cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _path(os.environ.get("HF_HOME") or os.path.join(caches, "huggingface"))


def cache() -> Path:
    """HF_HUB_CACHE, its older name, else `hub` in the home folder."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _path(named) if named else home() / "hub"


def offline() -> bool:
    """Whether HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set."""
    return _is_set("HF_HUB_OFFLINE") or _is_set("TRANSFORMERS_OFFLINE")


def go_offline() -> None:
    """Keeps this process and those that it starts off the network; huggingface_hub reads it at import."""
    if not _is_set("HF_HUB_OFFLINE"):
        os.environ["HF_HUB_OFFLINE"] = "1"
        _BY_SETTING.add("HF_HUB_OFFLINE")


def why_offline() -> tuple[str, str]:
    """What keeps us off the network, and how to end it."""
    named = "HF_HUB_OFFLINE" if _is_set("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
    if named in _BY_SETTING:
        return "--offline was given", "Leave out --offline (or DAY0_OFFLINE, or `offline` of day0.toml)"
    return f"{named} is set", f"Unset {named}"


def token() -> str | None:
    """The token to send; None where there is none or it may not be sent unasked."""
    if _is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return None
    if os.environ.get("HF_OIDC_RESOURCE"):
        return _asked()
    named = _clean(os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN"))
    if named:
        return named
    place = _path(os.environ.get("HF_TOKEN_PATH") or home() / "token")
    stored = _clean(_text(place))
    if stored and "refresh_token" in _text(place.with_name("stored_tokens")):
        return _asked()  # it expires, and the helper renews it
    return stored


def _asked() -> str | None:
    from huggingface_hub import get_token

    found = get_token()
    return str(found) if found else None


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").upper() in _YES


def _path(text: str | Path) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(text)))


def _text(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _clean(text: str | None) -> str | None:
    return (text or "").replace("\r", "").replace("\n", "").strip() or None

"""Web addresses of models on the hub, as a browser shows them, read as the hub's own names."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from day0.adapters.base.errors import InputError

from . import hub_settings

_PUBLIC = ("huggingface.co", "www.huggingface.co", "hf.co")
_VIEWS = ("tree", "blob", "resolve", "raw", "commit", "commits", "blame")  # what stands before a revision


def hub_address(model: str, revision: str | None) -> tuple[str, str | None]:
    """Id and revision of a model that is named by its page on the hub; anything else stays as it is.

    A page of the public hub and one below HF_ENDPOINT are both looked up where HF_ENDPOINT says.

    Raises:
        InputError: E135, the address names one revision and `revision` is another.
    """
    path = _path(model)
    if path is None:
        return model, revision
    parts = [unquote(part) for part in path.split("/") if part]
    last, mark, pinned = parts[-1].partition("@") if len(parts) <= 2 and parts else ("", "", "")
    if mark:  # org/name@REV
        parts[-1] = last
    if not parts or parts[0] in ("datasets", "spaces", "api") or parts[0] in _VIEWS:
        return model, revision
    views = [place for place in (1, 2) if len(parts) > place and parts[place] in _VIEWS]
    name = "/".join(parts[: views[0]] if views else parts[:2])
    named = pinned or _revision(parts[views[0] + 1 :]) if views or pinned else None
    if named and revision is not None and named != revision:
        raise InputError(
            f"the address {model!r} names one revision and {revision!r} is another",
            code="E135",
            remedy="Give one.",
        )
    return name, revision or named or None


def _path(model: str) -> str | None:
    """What stands behind the hub's own address; None where it is no page of it."""
    if not model.lower().startswith(("http://", "https://")):
        return None
    address, endpoint = urlsplit(model), urlsplit(hub_settings.endpoint())
    if address.username is not None:
        return None
    if (address.scheme.lower(), address.netloc.lower()) == (endpoint.scheme.lower(), endpoint.netloc.lower()):
        below = endpoint.path.rstrip("/")
        if address.path.startswith(f"{below}/"):
            return address.path[len(below) :]
    return address.path if address.hostname in _PUBLIC else None


def _revision(parts: list[str]) -> str:
    """`refs/pr/3` is three parts of a path; every other revision is one."""
    return "/".join(parts[:3] if parts[:1] == ["refs"] else parts[:1])

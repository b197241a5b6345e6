"""config.json of a release: a stranger's JSON, read with limits and nothing filled in."""

from __future__ import annotations

import json
import math
from typing import Any

from day0.adapters.base.errors import InputError

from .safetensors_header import POINTER, describe_pointer
from .strict_json import has_lone_surrogate

MAX_CONFIG_BYTES = 10_000_000  # huggingface.js stops there too; the largest published one has 3.1 MB
MAX_SEPARATORS = 500_000  # commas and colons; the largest published config has some 80,000
MAX_DEPTH = 64  # real configs nest five deep


def parse_config(data: bytes, where: str) -> dict[str, Any]:
    """The config as a dictionary.

    Non-finite numbers, bare literals in some published configs, become `{"__float__": "Infinity"}`,
    the form in which transformers itself writes them.

    Args:
        data: the file's bytes.
        where: named in errors.

    Raises:
        InputError: E103, it is too large or deep, not JSON, not an object, or holds what is no text.
    """
    if len(data) > MAX_CONFIG_BYTES:
        raise _unusable(
            where, f"has {len(data)} bytes, more than the {MAX_CONFIG_BYTES} that a config may have"
        )
    if data.startswith(POINTER):
        raise InputError(
            f"{where} is a git-lfs pointer, not the file ({describe_pointer(data)})",
            code="E103",
            remedy="Run `git lfs pull` in the folder, or download the release anew.",
        )
    if data.count(b",") + data.count(b":") > MAX_SEPARATORS:
        raise _unusable(where, f"holds more than the {MAX_SEPARATORS} keys and values that a config may have")
    try:
        text = data.decode("utf-8")
        parsed = json.loads(text, parse_constant=_tagged, parse_float=_finite)
        if has_lone_surrogate(text):
            raise _unusable(where, "holds half a surrogate pair in a string, which is no text")
    except UnicodeDecodeError as error:
        raise _unusable(where, f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _unusable(
            where, f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise _unusable(where, "is nested too deeply") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise _unusable(where, f"is not usable JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise _unusable(where, f"holds a {type(parsed).__name__} instead of an object")
    if _depth(parsed) > MAX_DEPTH:
        raise _unusable(where, f"is nested more than {MAX_DEPTH} deep")
    return parsed


def _tagged(literal: str) -> dict[str, str]:
    return {"__float__": literal}


def _finite(text: str) -> float | dict[str, str]:
    value = float(text)
    return value if math.isfinite(value) else _tagged("Infinity" if value > 0 else "-Infinity")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
    return depth


def _unusable(where: str, what: str) -> InputError:
    return InputError(f"{where} {what}", code="E103", remedy="Give a model whose config.json is whole.")

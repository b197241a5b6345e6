"""What is wrong with JSON that is too large for the strict parser: found without making values of it."""

from __future__ import annotations

import msgspec


def fault_of_large(data: bytes) -> str:
    """Why a text that a typed decoder refused cannot be used, for the sentence "the header is ..."."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except RecursionError:
        return "nested too deeply"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"not JSON: {error}"
    return f"of {len(data)} bytes and holds a key twice or a value of the wrong kind"

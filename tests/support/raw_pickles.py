"""Pickles and torch archives made opcode by opcode, without torch: plain ones and ones that ask for code."""

from __future__ import annotations

import io
import zipfile

_STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
_TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n("
    + _STORAGE
    + b"K\0K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
)
PLAIN = b"\x80\x02}q\0X\x01\0\0\0wq\x01" + _TENSOR + b"s."
"""A state dictionary of one tensor, as `torch.save` writes it."""

SYSTEM = b"\x80\x02cposix\nsystem\nX\x0c\0\0\0touch gotchaq\0\x85R."
"""Runs a command when it is loaded."""

COMPUTED = b"\x80\x04\x8c\x02os\x94h\0\x8c\x06system\x94\x93\x8c\x0ctouch gotcha\x85R."
"""The same, its name put together on the stack and fetched from the memo."""

CLASS = b"\x80\x02cacme.model\nNet\n)\x81."
"""An object of a class that plain weights do not need."""


def torch_archive(pickle: bytes, name: str = "archive/data.pkl", *, packed: bool = False) -> bytes:
    """What `torch.save` writes from 1.6 on: a zip whose `data.pkl` refers to the storages beside it."""
    held = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(held, "w", method) as archive:
        archive.writestr(name, pickle)
        archive.writestr("archive/data/0", b"\0" * 16)
        archive.writestr("archive/version", b"3\n")
    return held.getvalue()


def torch_stream(pickle: bytes) -> bytes:
    """What `torch.save` wrote before: magic number, protocol, system, object, keys, raw numbers."""
    magic = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
    return magic + b"\x80\x02M\xe9\x03." + b"\x80\x02}." + pickle + b"\x80\x02]." + b"\x07" * 64

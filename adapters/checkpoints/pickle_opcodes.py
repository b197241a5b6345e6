"""A pickle walked opcode by opcode, never run: the globals it would import, through stack and memo."""

from __future__ import annotations

import codecs
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_OPCODES = 1_000_000  # a tensor takes some 35; the largest published shard holds a few thousand
MAX_TEXT = 200  # characters of a string that may name a module; longer ones are passed over
MAX_GLOBALS = 1000
_BLOCK = 1 << 20
_LINE = 1 << 12
_STRINGS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING",
                      "SHORT_BINSTRING"})  # fmt: skip
_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_MARK = object()


class PickleError(ValueError):
    """The bytes are no pickle from here on, or more of it than is walked."""


@dataclass
class Opcodes:
    """What was met.

    Attributes:
        protocol: as stated.
        number: of opcodes.
        globals: that loading would import; `?` where a name is computed.
        integer: the first whole number, by which torch's old format is known.
        end: position after the pickle.
    """

    protocol: int = 0
    number: int = 0
    globals: set[str] = field(default_factory=set)
    integer: int | None = None
    end: int = 0


class Window:
    """Bytes by position, fetched in blocks, with a limit on all of them together.

    Args:
        fetch: bytes from start to stop.
        size: of the whole.
        limit: bytes that may be fetched.

    Attributes:
        left: bytes that may still be fetched.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, limit: int) -> None:
        self._fetch, self.size, self.left = fetch, size, limit
        self._start, self._held = 0, b""

    def read(self, start: int, length: int) -> bytes:
        """That many bytes.

        Raises:
            PickleError: they are not there, or too many were fetched.
        """
        stop = start + length
        if stop > self.size:
            raise PickleError(f"ends at byte {self.size} within an opcode")
        offset = start - self._start
        if offset < 0 or stop > self._start + len(self._held):
            self._load(start, max(length, min(_BLOCK, self.size - start)))
            offset = 0
        return self._held[offset : offset + length]

    def line(self, start: int) -> tuple[bytes, int]:
        """The bytes up to the next line feed (the first of them, where there are many) and their number.

        Raises:
            PickleError: there is no line feed.
        """
        place, first = start, b""
        while place < self.size:
            block = self.read(place, min(_LINE, self.size - place))
            at = block.find(b"\n")
            if place == start:
                first = block[: at if at >= 0 else None]
            if at >= 0:
                return first, place + at - start
            place += len(block)
        raise PickleError(f"has a line without an end at byte {start}")

    def _load(self, start: int, length: int) -> None:
        if length > self.left:
            raise PickleError("has more bytes of opcodes than are read")
        self.left -= length
        self._start, self._held = start, self._fetch(start, start + length)
        if len(self._held) < length:
            raise PickleError(f"ends at byte {start + len(self._held)} within an opcode")


def walk_pickle(window: Window, start: int, found: Opcodes) -> None:
    """Walks one pickle from `start` to its STOP; `found` holds what was met even where it breaks off.

    Raises:
        PickleError: no pickle from some byte on, or longer than what is walked.
    """
    stack: list[object] = []
    memo: dict[int, str] = {}
    memoized, numbered, place = 0, False, start
    while True:
        code = window.read(place, 1)[0]
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise PickleError(f"has no opcode of a pickle at byte {place}")
        argument, place = _argument(window, opcode, place + 1)
        found.number += 1
        name = opcode.name
        if name == "STOP":
            found.end = place
            return
        if found.number > MAX_OPCODES:
            raise PickleError(f"has more than {MAX_OPCODES} opcodes")
        number = argument if isinstance(argument, int) else 0
        if name == "PROTO":
            found.protocol = max(found.protocol, number)
        elif name in _PUTS:
            slot = memoized if name == "MEMOIZE" else number
            memoized += 1
            numbered = numbered or name != "MEMOIZE"
            if numbered and name == "MEMOIZE":  # no pickler does both; the numbers could no longer be told
                raise PickleError("numbers its memo in two ways")
            top = stack[-1] if stack else None
            if isinstance(top, str):
                memo[slot] = top
            else:
                memo.pop(slot, None)
            continue
        _step(opcode, argument, stack, memo, found)


def _argument(window: Window, opcode: pickletools.OpcodeInfo, place: int) -> tuple[object, int]:
    """The argument where it matters (names, small integers), and where the next opcode is."""
    kind = opcode.arg
    if kind is None:
        return None, place
    if kind.n == pickletools.UP_TO_NEWLINE:
        first, length = window.line(place)
        place += length + 1
        if opcode.name in ("GLOBAL", "INST"):
            second, length = window.line(place)
            return f"{_text(first)}.{_text(second)}", place + length + 1
        if length > _LINE:
            return None, place
        return _line_value(opcode.name, first), place
    if kind.n >= 0:
        return int.from_bytes(window.read(place, kind.n), "little") if kind.n <= 8 else None, place + kind.n
    width = _WIDTHS[kind.n]
    length = int.from_bytes(window.read(place, width), "little")
    place += width
    if place + length > window.size:
        raise PickleError(f"ends at byte {window.size} within an opcode")
    if opcode.name in _STRINGS and length <= MAX_TEXT:
        return _text(window.read(place, length)), place + length
    if opcode.name in ("LONG1", "LONG4") and length <= 16:
        return int.from_bytes(window.read(place, length), "little", signed=True), place + length
    return None, place + length


def _line_value(name: str, line: bytes) -> object:
    if name in ("PUT", "GET", "INT", "LONG"):
        digits = line.rstrip(b"L").strip()
        return int(digits) if digits.lstrip(b"-").isdigit() and len(digits) < 40 else 0
    if name == "UNICODE":
        return _cut(line.decode("raw_unicode_escape", "replace"))
    try:
        return _text(codecs.escape_decode(line.strip()[1:-1])[0])
    except ValueError:
        return None


def _text(data: bytes) -> str:
    return _cut(data.decode("utf-8", "replace"))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."  # so that no cut name looks whole


def _step(
    opcode: pickletools.OpcodeInfo,
    argument: object,
    stack: list[object],
    memo: dict[int, str],
    found: Opcodes,
) -> None:
    """The opcode's effect on the stack, with strings kept and everything else as None."""
    name = opcode.name
    if name == "DUP":
        stack.append(stack[-1] if stack else None)
        return
    taken = _pop(opcode, stack)
    if name in ("GLOBAL", "INST"):
        _note(found, str(argument))
    elif name == "STACK_GLOBAL":
        module, attribute = (taken[0], taken[1]) if len(taken) > 1 else (None, None)
        known = isinstance(module, str) and isinstance(attribute, str)
        _note(found, f"{module}.{attribute}" if known else "?")
    elif name.startswith("EXT"):
        _note(found, f"copyreg.extension_{argument}")
    if found.integer is None and isinstance(argument, int) and name in ("LONG1", "LONG4", "LONG", "INT"):
        found.integer = argument
    value: object = None
    if name in _GETS:
        value = memo.get(argument) if isinstance(argument, int) else None
    elif name in _STRINGS:
        value = argument
    for item in opcode.stack_after:
        stack.append(_MARK if item is pickletools.markobject else value)


def _pop(opcode: pickletools.OpcodeInfo, stack: list[object]) -> list[object]:
    """Takes what the opcode takes; down to the last mark where it says so."""
    before = opcode.stack_before
    if pickletools.markobject in before or (opcode.name == "POP" and stack and stack[-1] is _MARK):
        while stack and stack.pop() is not _MARK:
            pass
        below = before.index(pickletools.markobject) if pickletools.markobject in before else 0
        del stack[max(len(stack) - below, 0) :]
        return []
    number = min(len(before), len(stack))
    taken = stack[len(stack) - number :]
    del stack[len(stack) - number :]
    return taken


def _note(found: Opcodes, name: str) -> None:
    if len(found.globals) >= MAX_GLOBALS and name not in found.globals:
        raise PickleError(f"imports more than {MAX_GLOBALS} names")
    found.globals.add(name)

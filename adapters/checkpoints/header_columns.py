"""The tensors of one header as columns, each row checked by the rules of the format as it comes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from day0.adapters.base.checkpoint import TensorKind
from day0.adapters.base.dtypes import BITS, FROM_SAFETENSORS, num_bytes

from .header_canonical import canonical_columns
from .header_entries import Entry
from .strict_json import shorten

MAX_NAME_LENGTH = 1_024  # real names stay below 200; a longer one is an attack on tables and logs
MAX_KNOWN = 100_000  # kinds remembered; a release has some hundred
MAX_RANK = 64  # torch's own limit
MAX_DIM = 2**63 - 1  # torch counts in signed 64-bit integers


class HeaderError(ValueError):
    """A header that breaks a rule.

    Args:
        code: short stable word for the rule.
        reason: what was found, with the numbers.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Known:
    """What was learnt of dtypes and shapes; the headers of one release share it, and so their kinds.

    Attributes:
        by_shape: kinds by dtype, as safetensors names it, and shape.
        by_text: kinds by the text that states them.
    """

    by_shape: dict[tuple[str, tuple[int, ...]], TensorKind] = field(default_factory=dict)
    by_text: dict[str, TensorKind] = field(default_factory=dict)


class Columns:
    """Names, kinds and first bytes, in the order in which they were given.

    Args:
        known: kinds by dtype and shape, added to.

    Attributes:
        names: of the tensors.
        kinds: of each, shared by those that are alike.
        starts: first byte of each, from the start of the data.
        expected: where the next tensor has to begin, as long as `ordered` holds.
        ordered: whether each tensor so far begins where the one before it ends.
    """

    def __init__(self, known: Known) -> None:
        self.names: list[str] = []
        self.kinds: list[TensorKind] = []
        self.starts: list[int] = []
        self.expected = 0
        self.ordered = True
        self._known = known

    def extend(self, rows: Mapping[str, Entry]) -> None:
        """Takes further tensors by name.

        Raises:
            HeaderError: one breaks a rule.
        """
        if not rows:
            return
        kinds = self._kinds(rows)
        starts, ends = zip(*[entry.data_offsets for entry in rows.values()], strict=True)
        places = list(accumulate([kind.bytes for kind in kinds], initial=self.expected))
        if (*starts, places[-1]) != tuple(places) or ends != tuple(places[1:]):  # not one behind the other
            self.ordered = False
            for name, kind, start, end in zip(rows, kinds, starts, ends, strict=True):
                if not 0 <= start <= end or end - start != kind.bytes:
                    raise _wrong_size(name, kind, start, end)
        self._append(list(rows), kinds, starts, places[-1])

    def extend_canonical(self, piece: bytes) -> bool:
        """Takes the tensors of a piece of header, as bytes; False, and nothing taken, where it is unusual.

        Raises:
            HeaderError: one breaks a rule.
        """
        if len(self._known.by_text) > MAX_KNOWN:
            self._known.by_text.clear()
        found = canonical_columns(piece, self._known.by_text, self._learn, self.expected)
        if found is not None:
            self._append(*found)
        return found is not None

    def _append(
        self, names: Sequence[str], kinds: Sequence[TensorKind], starts: Sequence[int], expected: int
    ) -> None:
        self.expected = expected
        self.names += names
        self.kinds += kinds
        self.starts += starts
        longest = max(names, key=len)
        if len(longest) > MAX_NAME_LENGTH:
            message = f"tensor name {shorten(longest)} has {len(longest)} characters"
            raise HeaderError("header_name", message)

    def _kinds(self, rows: Mapping[str, Entry]) -> list[TensorKind]:
        known, keys = self._known.by_shape, [(entry.dtype, entry.shape) for entry in rows.values()]
        try:
            return [known[key] for key in keys]
        except KeyError:
            if len(known) > MAX_KNOWN:
                known.clear()
            for name, key in zip(rows, keys, strict=True):
                if key not in known:
                    self._learn(name, *key)
            return [known[key] for key in keys]

    def _learn(self, name: str, dtype: str, shape: tuple[int, ...]) -> TensorKind:
        known = self._known.by_shape
        kind = known.get((dtype, shape))
        if kind is None:
            kind = known[dtype, shape] = _checked_kind(name, dtype, shape)
        return kind

    def sorted(self) -> Columns:
        """The same in the order of the data.

        Raises:
            HeaderError: `header_gap`, the data have a hole or overlap.
        """
        ends = (start + kind.bytes for start, kind in zip(self.starts, self.kinds, strict=True))
        # Empty tensors begin where the next one does: the end decides, so that they come first.
        rows = sorted(zip(self.starts, ends, self.names, self.kinds, strict=True), key=lambda row: row[:3])
        ordered = Columns(self._known)
        for start, end, name, kind in rows:
            if start != ordered.expected:
                what = "a hole before" if start > ordered.expected else "an overlap at"
                message = f"the data have {what} tensor {shorten(name)}: byte {start} for {ordered.expected}"
                raise HeaderError("header_gap", message)
            ordered.expected = end
            ordered.names.append(name)
            ordered.kinds.append(kind)
            ordered.starts.append(start)
        return ordered


def _wrong_size(name: str, kind: TensorKind, start: int, end: int) -> HeaderError:
    if not 0 <= start <= end:
        return HeaderError("header_offsets", f"tensor {shorten(name)} has impossible data_offsets")
    message = (
        f"tensor {shorten(name)} has {end - start} bytes, {kind.dtype} {list(kind.shape)} needs {kind.bytes}"
    )
    return HeaderError("header_size", message)


def _checked_kind(name: str, dtype: str, shape: tuple[int, ...]) -> TensorKind:
    short = FROM_SAFETENSORS.get(dtype)
    if short is None:
        raise HeaderError("header_dtype", f"tensor {shorten(name)} has the unknown dtype {shorten(dtype)}")
    if len(shape) > MAX_RANK:
        raise HeaderError("header_shape", f"tensor {shorten(name)} has {len(shape)} dimensions")
    elements = 1
    for dim in shape:
        if not 0 <= dim <= MAX_DIM:
            raise HeaderError("header_shape", f"tensor {shorten(name)} has an impossible dimension")
        elements *= dim
    if elements > MAX_DIM:
        raise HeaderError("header_shape", f"tensor {shorten(name)} has more elements than can be counted")
    if BITS[short] * elements % 8:
        raise HeaderError(
            "header_bits", f"tensor {shorten(name)} does not fill whole bytes: {elements} elements of {short}"
        )
    return TensorKind(short, shape, num_bytes(short, elements))

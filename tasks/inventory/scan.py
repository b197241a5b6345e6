"""NaN, infinity, zeros and magnitudes of stored numbers, from their bits; nothing is converted to float.

The magnitude of a sign-and-exponent format is its bits without the sign, and magnitudes sort as integers. So
the largest one is found by two reductions of the bits as they lie, once read as signed integers (largest
positive number, or of negative ones the largest magnitude) and once as unsigned (the reverse). Only where
that maximum reaches the codes of infinity and NaN are elements counted, in blocks.

Bits of the formats: IEEE 754 for fp16, fp32 and fp64; bf16 is the upper half of fp32; fp8 and e8m0 as in the
OCP 8-bit and Microscaling specifications (e4m3 has no infinity and NaN 0x7F; e8m0 is a power of two, NaN
0xFF); the `fnuz` variants have one NaN, 0x80, no infinity and no negative zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK = 2**17  # elements counted at once where there is something to count; bounds the temporary arrays
_INTEGERS = {"int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
             "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "bool": "u1"}  # fmt: skip
_CODES = frozenset({"fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "int4"})


@dataclass(frozen=True)
class _Form:
    """A floating-point format by its codes.

    Attributes:
        width: bytes of one number.
        limit: smallest magnitude that is no finite number.
        infinity: its magnitude; -1 where the format has none.
        exponent: bits.
        bias: of the exponent.
    """

    width: int
    limit: int
    infinity: int
    exponent: int
    bias: int


_FORMS = {
    "bf16": _Form(2, 0x7F80, 0x7F80, 8, 127),
    "fp16": _Form(2, 0x7C00, 0x7C00, 5, 15),
    "fp32": _Form(4, 0x7F800000, 0x7F800000, 8, 127),
    "complex64": _Form(4, 0x7F800000, 0x7F800000, 8, 127),
    "fp64": _Form(8, 0x7FF << 52, 0x7FF << 52, 11, 1023),
    "fp8_e5m2": _Form(1, 0x7C, 0x7C, 5, 15),
    "fp8_e4m3": _Form(1, 0x7F, -1, 4, 7),
    "fp8_e4m3fnuz": _Form(1, 0x80, -1, 4, 8),
    "fp8_e5m2fnuz": _Form(1, 0x80, -1, 5, 16),
}


@dataclass
class Tally:
    """What has been seen of one tensor.

    Attributes:
        dtype: as stored.
        nan: elements.
        inf: elements.
        top: largest magnitude of a finite element, as the bits of its format or, for integers, as it is.
        seen: bytes.
    """

    dtype: str
    nan: int = 0
    inf: int = 0
    top: int = 0
    seen: int = 0

    @property
    def checked(self) -> str:
        """See `ContentPattern.checked`."""
        if self.dtype in _FORMS or self.dtype in _INTEGERS or self.dtype == "e8m0":
            return "full"
        return "zeros" if self.dtype in _CODES else "none"

    @property
    def is_zero(self) -> bool:
        """Whether every element is zero; never for a format that is not read, or has no zero."""
        checked = self.checked != "none" and self.dtype != "e8m0"
        return checked and self.seen > 0 and self.top == 0 and self.nan == 0 and self.inf == 0

    @property
    def max_abs(self) -> float:
        """The largest finite magnitude as a number; 0 for codes."""
        if self.dtype in _FORMS:
            return _value(_FORMS[self.dtype], self.top)
        if self.dtype == "e8m0":
            return 2.0 ** (self.top - 127) if self.seen > self.nan else 0.0
        return float(self.top) if self.dtype in _INTEGERS else 0.0

    def merge(self, other: Tally) -> None:
        """Adds what was seen of another piece of the tensor."""
        self.nan += other.nan
        self.inf += other.inf
        self.top = max(self.top, other.top)
        self.seen += other.seen


def width_of(dtype: str) -> int:
    """Bytes of one element, by which pieces of a tensor may be cut; 1 for codes and unknown formats."""
    if dtype in _FORMS:
        return _FORMS[dtype].width
    return int(_INTEGERS[dtype][1]) if dtype in _INTEGERS else 1


def scan(dtype: str, data: memoryview) -> Tally:
    """Looks at a piece of a tensor.

    Args:
        dtype: short name; a format that is not known is only measured.
        data: whole elements.
    """
    tally = Tally(dtype, seen=len(data))
    if not len(data):
        return tally
    if dtype in _FORMS:
        _scan_floats(_FORMS[dtype], _words(data, f"u{_FORMS[dtype].width}"), tally)
    elif dtype in _INTEGERS:
        words = _words(data, _INTEGERS[dtype])
        tally.top = max(int(words.max()), -int(words.min()))
    elif dtype == "e8m0":
        _scan_exponents(_words(data, "u1"), tally)
    elif dtype == "fp4_e2m1":
        tally.top = int(any((block & 0x77).any() for block in _blocks(_words(data, "u1"))))  # 0x8 is -0
    elif dtype in _CODES:
        tally.top = int(_words(data, "u1").max() > 0)
    return tally


def _words(data: memoryview, kind: str) -> Any:
    array = np.frombuffer(data, dtype=np.uint8)
    if array.ctypes.data % int(kind[1]):
        array = array.copy()  # numpy reads what is not aligned an element at a time
    return array.view(np.dtype(f"<{kind}"))


def _blocks(words: Any) -> Any:
    return (words[start : start + BLOCK] for start in range(0, len(words), BLOCK))


def _scan_floats(form: _Form, words: Any, tally: Tally) -> None:
    bits = 8 * form.width
    mask = (1 << (bits - 1)) - 1
    if form.limit == mask + 1:  # the only NaN is the code of negative zero
        _scan_single_nan(words, tally)
        return
    signed = words.view(np.dtype(f"<i{form.width}"))
    top = max(int(words.max()) & mask, int(signed.max()) & mask)
    if top < form.limit:
        tally.top = top
        return
    for block in _blocks(words):
        magnitudes = block & words.dtype.type(mask)
        finite = magnitudes < form.limit
        infinite = int(np.count_nonzero(magnitudes == form.infinity)) if form.infinity >= 0 else 0
        tally.inf += infinite
        tally.nan += len(block) - int(np.count_nonzero(finite)) - infinite
        tally.top = max(tally.top, int(magnitudes.max(where=finite, initial=0)))


def _scan_single_nan(words: Any, tally: Tally) -> None:
    for block in _blocks(words):
        tally.nan += int(np.count_nonzero(block == 0x80))
        tally.top = max(tally.top, int((block & 0x7F).max()))


def _scan_exponents(words: Any, tally: Tally) -> None:
    top = int(words.max())
    if top < 0xFF:
        tally.top = top
        return
    for block in _blocks(words):
        finite = block < 0xFF
        tally.nan += len(block) - int(np.count_nonzero(finite))
        tally.top = max(tally.top, int(block.max(where=finite, initial=0)))


def _value(form: _Form, magnitude: int) -> float:
    """The number that a magnitude stands for."""
    fraction_bits = 8 * form.width - 1 - form.exponent
    exponent, fraction = magnitude >> fraction_bits, magnitude & ((1 << fraction_bits) - 1)
    if exponent == 0:
        return float(fraction) * 2.0 ** (1 - form.bias - fraction_bits)
    return float((1 << fraction_bits) + fraction) * 2.0 ** (exponent - form.bias - fraction_bits)

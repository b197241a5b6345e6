"""What reading every byte of the weights showed; only where a person asked for it (`--verify`)."""

from __future__ import annotations

from collections.abc import Sequence

from day0.adapters.base.values import Number, Value


class VerifiedShard(Value):
    """One tensor file, read from its first byte to its last.

    Attributes:
        path: in the release.
        size: bytes read.
        sha256: of the content; empty where the file could not be read.
        expected: the hash that the source gives (`git:` before it where it is git's blob hash), or the one
            that an earlier verification of this folder recorded; empty where there is neither.
        state: `matches` the source's hash; where the source gives none: `recorded`, there was nothing to hold
            it against, and it is remembered from now on; `as_before`, it is the one remembered; `changed`
            since it was remembered, and so did the file's size, inode or time; `damaged`: changed, and they
            did not; `differs` from the source's; `unreadable`.
        problem: why it is unreadable.
    """

    path: str
    size: int
    sha256: str = ""
    expected: str = ""
    state: str
    problem: str = ""


class ContentPattern(Value):
    """The numbers in the tensors of one pattern and dtype.

    Attributes:
        pattern: as in the table of tensors.
        dtype: as stored.
        role: as in the table of tensors.
        tensors: how many were looked at.
        nan: elements that are not a number, over all of them.
        inf: infinite elements, over all of them.
        bad_tensors: tensors with any such element.
        zero_tensors: tensors of nothing but zeros.
        max_abs: largest magnitude of a finite element, before any scale; of scales' own format for scales.
        worst: the tensor that holds it.
        examples: up to five tensors with NaN or infinity, else of zeros only.
        checked: `full`; `zeros`: packed codes, of which only all-zero can be told; `none`: a format whose
            numbers are not read here.
    """

    pattern: str
    dtype: str
    role: str
    tensors: int
    nan: int = 0
    inf: int = 0
    bad_tensors: int = 0
    zero_tensors: int = 0
    max_abs: Number = 0.0
    worst: str = ""
    examples: Sequence[str] = ()
    checked: str = "full"


class Verification(Value):
    """The outcome of `--verify`.

    Attributes:
        shards: of the canonical set, in its order.
        bytes: read in all.
        tensors: whose numbers were looked at in full.
        partly_checked: tensors of which only all-zero can be told.
        unchecked: tensors that were only hashed: another format, cut short, or in an unreadable file.
        nan: elements over all tensors.
        inf: elements over all tensors.
        zero_tensors: over all tensors, biases and side tensors included.
        patterns: of all tensors, those with NaN or infinity first, then those of zeros, then by magnitude.
        earlier: whether an earlier run read the bytes; the files have had the same identities since.
    """

    shards: Sequence[VerifiedShard]
    bytes: int
    tensors: int
    partly_checked: int
    unchecked: int
    nan: int
    inf: int
    zero_tensors: int
    patterns: Sequence[ContentPattern]
    earlier: bool = False

"""How tensor files are called: natural order, numbered families, which set of weights counts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# `model-00001-of-00012`, `model_1`, `00001-of-00012`, `model-00001-of-00012.fp16` (transformers' variants).
_OF = re.compile(
    r"(?P<before>(?P<stem>.+?)[-_.]|)(?P<number>\d{1,9})"
    r"(?P<after>[-_](?i:of)[-_](?P<total>\d{1,9})(?P<tail>[-_.][A-Za-z]\w*)?)"
)
_BARE = re.compile(
    r"(?P<before>(?P<stem>.+?)[-_.])(?P<number>\d{1,9})(?P<after>)(?P<total>(?!))?(?P<tail>(?!))?"
)
_LEAST_ROW = 3  # files whose numbers show that none is left out between them
_DIGITS = re.compile(r"(\d+)")
COPIES = re.compile(r"consolidated|original|metal|onnx|openvino|coreml", re.IGNORECASE)
_NOT_WEIGHTS = re.compile(
    r"(^|/)(training_args|optimizer|scheduler|rng_state|random_states|scaler|global_step)[^/]*$",
    re.IGNORECASE,
)
MAX_SHARDS = 100_000  # a name that promises more promises nothing; the largest release has 413
PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill", ".pt2")
"""Endings of files that may be pickles, weights or not."""

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def natural_key(path: str) -> tuple[object, ...]:
    """Sorts `model-2` before `model-10`, whatever the zero padding."""
    return tuple(
        (0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part)
        for part in _DIGITS.split(path)
    )


@dataclass(frozen=True)
class Family:
    """Files that form one set of weights.

    Attributes:
        folder: inside the release, empty for its top.
        stem: common name, e.g. `model`.
        files: in natural order.
        total: what `-of-N` claims; 0 where the names claim nothing or contradict each other.
        numbers: number of each file; empty for a single unnumbered one.
    """

    folder: str
    stem: str
    files: Sequence[str]
    total: int
    numbers: Sequence[int]

    @property
    def absent(self) -> Sequence[int]:
        """Numbers that the names promise and no file bears; numbering may start at 0 or 1."""
        if not self.numbers or not self.total:
            return ()
        start = 0 if 0 in self.numbers else 1
        # Some releases count 0..N-1 and some 0..N, both under `-of-N`.
        stop = max(start + self.total, min(max(self.numbers), MAX_SHARDS) + 1)
        return tuple(sorted(set(range(start, stop)) - set(self.numbers)))

    @property
    def skipped(self) -> Sequence[int]:
        """Numbers left out between others, of names that tell no total and otherwise count on."""
        held = set(self.numbers)
        if self.total or len(held) < _LEAST_ROW or max(held) >= 2 * len(held):
            return ()
        return tuple(sorted(set(range(min(held), max(held))) - held))

    @property
    def beyond(self) -> Sequence[int]:
        """Numbers larger than `-of-N` allows; where numbering starts at 0, N itself is in use, too."""
        return tuple(number for number in self.numbers if self.total and number > self.total)


def _match(name: str) -> re.Match[str] | None:
    """How a name without its ending is numbered; a number alone is a name."""
    return _OF.fullmatch(name) or _BARE.fullmatch(name)


def renumbered(name: str, number: int | None) -> str:
    """The name, without its ending, of a file of the same set with another number; None puts a `*` there."""
    match = _match(name)
    if match is None:
        return name
    shown = "*" if number is None else f"{number:0{len(match['number'])}d}"
    return f"{match['before']}{shown}{match['after'] or ''}"


def number_of(name: str) -> int | None:
    """The number in a name without its ending; None where it has none."""
    match = _match(name)
    return int(match["number"]) if match else None


_Member = tuple[str, "re.Match[str] | None"]  # a path, and how its name is numbered


def families(paths: Iterable[str], suffix: str) -> list[Family]:
    """Groups files of that suffix into sets, the likeliest canonical set first.

    The top folder comes before subfolders, `model` before other stems, copies in another format
    (`consolidated`, `original/`, `metal/`) last.
    """
    groups: dict[tuple[str, str, bool], list[_Member]] = {}
    for path in paths:
        if path.endswith(suffix) and not _NOT_WEIGHTS.search(path):
            folder, name = posixpath.split(path)
            match = _match(name[: -len(suffix)])
            stem = name[: -len(suffix)]
            if match:
                stem = f"{match['stem'] or ''}{match['tail'] or ''}" or renumbered(stem, None)
            groups.setdefault((folder, stem, match is None), []).append((path, match))
    found = [
        _family(folder, stem, members)
        for (folder, stem, _), together in groups.items()
        for members in _sets_of(folder, stem, together)
    ]
    return sorted(found, key=_preference)


def _sets_of(folder: str, stem: str, members: list[_Member]) -> list[list[_Member]]:
    """Files of one stem, apart by what `-of-N` says where that makes a whole set of some of them.

    Other totals that contradict each other are a mistake in the names of one set.
    """
    by_total: dict[str, list[_Member]] = {}
    for path, match in members:
        by_total.setdefault(match["total"] or "" if match else "", []).append((path, match))
    apart = [list(held) for held in by_total.values()]
    if len(apart) > 1:
        made = [_family(folder, stem, list(held)) for held in apart]
        if any(family.total and not family.absent and not family.beyond for family in made):
            return apart
    return [members]


def _family(folder: str, stem: str, members: list[_Member]) -> Family:
    members.sort(key=lambda member: natural_key(member[0]))
    totals = {int(match["total"]) for _, match in members if match and match["total"]}
    totals = {total for total in totals if total <= MAX_SHARDS}
    return Family(
        folder=folder,
        stem=stem,
        files=tuple(path for path, _ in members),
        total=totals.pop() if len(totals) == 1 else 0,
        numbers=tuple(int(match["number"]) for _, match in members if match),
    )


def _preference(family: Family) -> tuple[object, ...]:
    return (
        bool(COPIES.search(f"{family.folder}/{family.stem}")),
        family.folder.count("/") + bool(family.folder),
        family.stem != "model",
        not family.numbers,
        -len(family.files),
        family.folder,
        family.stem,
    )


def pickle_files(sizes: Mapping[str, int]) -> list[str]:
    """Files that hold weights as pickles, by their names."""
    found = [path for path in sizes if path.endswith(PICKLE_SUFFIXES) and not _NOT_WEIGHTS.search(path)]
    return sorted(found, key=natural_key)

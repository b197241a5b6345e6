"""Special tokens and their ids: what config, generation config and tokenizer say, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.checkpoints.strict_json import shorten

from ..finding import Finding, Severity, Subject, make_finding
from .config_facts import ConfigFacts
from .readable import plural
from .record_structure import SpecialToken, StatedIds

USES = ("bos", "eos", "pad")
_TOKEN_KEYS = ("bos", "eos", "pad", "unk", "sep", "cls", "mask")
_STARTS = ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "sep_token_id",
           "unk_token_id", "cls_token_id", "mask_token_id")  # fmt: skip
_MAX_LISTED = 512  # special tokens in the record; some tokenizers reserve thousands
_MAX_IDS = 1000  # of one statement
_LONGEST = 200  # characters of a token's text in the record


@dataclass
class TokenTexts:
    """Texts and ids of tokens as the tokenizer's files give them.

    Attributes:
        ids: text -> id of the vocabulary and of added tokens.
        added: id -> text -> files that say so.
        special: ids with a meaning of their own.
        uses: use -> text -> places that say so.
        moved: text -> an id other than that of `ids`, and the file that says so.
    """

    ids: dict[str, int] = field(default_factory=dict)
    added: dict[int, dict[str, list[str]]] = field(default_factory=dict)
    special: set[int] = field(default_factory=set)
    uses: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    moved: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, number: int, text: str, source: str, *, special: bool = False) -> None:
        """Notes that a file gives that id to that text."""
        if self.ids.setdefault(text, number) != number:
            self.moved.setdefault(text, (number, source))
        self.added.setdefault(number, {}).setdefault(text, []).append(source)
        if special:
            self.special.add(number)

    def read_tokenizer_config(self, config: Mapping[str, Any], source: str) -> None:
        """`added_tokens_decoder` and the uses that the file states."""
        decoder = config.get("added_tokens_decoder")
        if isinstance(decoder, Mapping):
            for key, item in decoder.items():
                text = _text(item)
                if text is not None and key.isascii() and key.isdigit() and len(key) < 10:
                    special = isinstance(item, Mapping) and item.get("special") is True
                    self.add(int(key), text, source, special=special)
        for use in _TOKEN_KEYS:
            text = _text(config.get(f"{use}_token"))
            if text is not None:
                self.uses.setdefault(use, {}).setdefault(text, []).append(f"{source}#/{use}_token")

    def read_added_tokens(self, config: Mapping[str, Any], source: str) -> None:
        """A file of text -> id."""
        for text, number in config.items():
            if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 10**9:
                self.add(number, text, source)


def special_tokens(texts: TokenTexts) -> Sequence[SpecialToken]:
    """Tokens with a use, then the other special ones, by id."""
    found: dict[str, SpecialToken] = {}
    for use, stated in texts.uses.items():
        for text, sources in stated.items():
            before = found.get(text)
            found[text] = SpecialToken(
                text=text,
                id=texts.ids.get(text),
                use=f"{before.use} {use}" if before else use,
                sources=tuple((*(before.sources if before else ()), *sources)),
            )
    for number in sorted(texts.added):
        for text, sources in texts.added[number].items():
            if text not in found and number in texts.special:
                found[text] = SpecialToken(text=text, id=number, sources=tuple(sources))
    ordered = sorted(found.values(), key=lambda token: (token.id is None, token.id or 0, token.text))
    return [
        token.model_copy(update={"text": token.text[:_LONGEST], "sources": token.sources[:10]})
        for token in ordered[:_MAX_LISTED]
    ]


def stated_ids(
    facts: ConfigFacts, generation: Mapping[str, Any] | None, texts: TokenTexts
) -> Sequence[StatedIds]:
    """What each place says of beginning, end and padding."""
    places: list[tuple[str, Mapping[str, Any]]] = [("config.json#", facts.config)]
    if facts.pointer:
        places.append((f"config.json#{facts.pointer}", facts.text))
    if generation is not None:
        places.append(("generation_config.json#", generation))
    stated = []
    for use in USES:
        key = f"{use}_token_id"
        for place, part in places:
            if key in part:
                stated.append(StatedIds(use=use, source=f"{place}/{key}", ids=_ids(part[key])))
        for text, sources in texts.uses.get(use, {}).items():
            number = texts.ids.get(text)
            if number is not None:
                stated.append(StatedIds(use=use, source=sources[0], ids=(number,)))
    return stated


def token_findings(
    stated: Sequence[StatedIds], texts: TokenTexts, rows: int, *, generation: bool
) -> Sequence[Finding]:
    """Ids that disagree or that no row exists for.

    Args:
        stated: all statements.
        texts: what the tokenizer's files say.
        rows: of the embedding, else the config's vocabulary; 0 where unknown.
        generation: whether there is a generation config.
    """
    return (
        *_out_of_range(stated, rows, generation),
        *_disagreements(stated, generation),
        *_two_texts(texts),
        *_two_ids(texts),
    )


def _out_of_range(stated: Sequence[StatedIds], rows: int, generation: bool) -> Iterable[Finding]:
    """Where nothing is generated, an id in config.json often is a default of the class (SigLIP)."""
    for item in stated:
        beyond = [number for number in item.ids if rows and number >= rows]
        if beyond:
            listed = ", ".join(map(str, beyond[:5]))
            message = (
                f"{item.source} states {listed}; the vocabulary has {rows} rows, the last id is {rows - 1}"
            )
            unused = not generation and item.source.startswith("config.json")
            yield make_finding(
                "INV063", _subject(item.source), message, evidence=[item.source],
                severity="warning" if unused else None,
            )  # fmt: skip


def unknown_texts(texts: TokenTexts) -> Iterable[Finding]:
    """Tokens with a use whose text has no id: a loader adds them behind the last one."""
    for use in (*USES, "unk"):
        for text, sources in texts.uses.get(use, {}).items():
            if text and text not in texts.ids:
                message = (
                    f"{sources[0]} states {shorten(text)}, which the tokenizer's vocabulary does not have"
                )
                yield make_finding("INV062", _subject(sources[0]), message, evidence=sources)


def start_out_of_range(
    facts: ConfigFacts, generation: Mapping[str, Any] | None, rows: int
) -> Iterable[Finding]:
    """The tokens that a decoder begins with, or is made to begin and end with, which have no row."""
    places = [("config.json#", facts.config), (f"config.json#{facts.pointer}", facts.text)]
    places.append(("generation_config.json#", generation or {}))
    stated = [
        StatedIds(use="bos", source=f"{place}/{key}", ids=_ids(part[key]))
        for place, part in dict(places).items()
        for key in _STARTS
        if key in part
    ]
    yield from _out_of_range(stated, rows, generation=True)


def _disagreements(stated: Sequence[StatedIds], generation: bool) -> Iterable[Finding]:
    for use in USES:
        said = [item for item in stated if item.use == use and item.ids]
        by_generation = {
            number for item in said if item.source.startswith("generation") for number in item.ids
        }
        others = [item for item in said if not item.source.startswith("generation")]
        if use == "eos" and generation and others:
            yield from _ends(by_generation, others)
        elif len({frozenset(item.ids) for item in said}) > 1:
            listed = ", ".join(f"{item.source} {list(item.ids)}" for item in said)
            # Padding is masked and most models have several candidates for it; a wrong beginning is not.
            severity: Severity | None = None if use == "bos" else "info"
            message = f"{use} differs: {listed}"
            yield make_finding(
                "INV062",
                _subject(f"{use}_token_id"),
                message,
                evidence=[item.source for item in said],
                severity=severity,
            )


def _ends(by_generation: set[int], others: Sequence[StatedIds]) -> Iterable[Finding]:
    """The generation config decides where a text ends; an end that only others know is run past."""
    missing = [item for item in others if not by_generation & set(item.ids)]
    if not missing:
        return
    listed = ", ".join(f"{item.source} {list(item.ids)}" for item in missing)
    held = f"states {sorted(by_generation)}" if by_generation else "states none"
    message = f"generation_config.json {held} as the end of a text; {listed}"
    evidence = ["generation_config.json#/eos_token_id", *(item.source for item in missing)]
    yield make_finding("INV062", _subject("eos_token_id"), message, evidence=evidence)


def _two_texts(texts: TokenTexts) -> Iterable[Finding]:
    twice = {number: said for number, said in texts.added.items() if len(said) > 1}
    if twice:
        number, said = next(iter(sorted(twice.items())))
        listed = ", ".join(f"{shorten(text)} in {sources[0]}" for text, sources in said.items())
        some = f"{len(twice):,} ids of added tokens have two texts, the first is"
        alone = "an added token's id has two texts:"
        message = f"{some if len(twice) > 1 else alone} {number}: {listed}"
        yield make_finding(
            "INV062",
            _subject("added tokens"),
            message,
            evidence=sorted({place for sources in said.values() for place in sources}),
        )


def _two_ids(texts: TokenTexts) -> Iterable[Finding]:
    if texts.moved:
        text, (number, source) = next(iter(sorted(texts.moved.items())))
        message = (
            f"{plural(len(texts.moved), 'token')} with two ids, the first is {shorten(text)}: "
            f"{texts.ids[text]} in the vocabulary, {number} in {source}"
        )
        evidence = sorted({place for _, place in texts.moved.values()})
        yield make_finding("INV062", _subject("ids of tokens"), message, evidence=evidence)


def no_ids(facts: ConfigFacts, generation: Mapping[str, Any] | None) -> Iterable[Finding]:
    """Statements of beginning, end or padding that are no ids; a null and a negative number mean none."""
    for place, part in (("config.json#", facts.config), ("generation_config.json#", generation or {})):
        for key in (f"{use}_token_id" for use in USES):
            value = part.get(key)
            odd = [item for item in (value if isinstance(value, list) else [value]) if not _may_be_id(item)]
            if odd:
                message = f"{place}/{key} states {_told(odd[0])}, which is no id of a token"
                yield make_finding("INV062", _subject(f"{place}/{key}"), message, evidence=[f"{place}/{key}"])


def _told(value: Any) -> str:
    if isinstance(value, str | float | bool):
        return shorten(str(value))
    return "a number too large" if isinstance(value, int) else "a list or an object"


def _may_be_id(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value < 2**53)


def _ids(value: Any) -> tuple[int, ...]:
    """The ids of a statement; negative ones mean none."""
    items = value if isinstance(value, list | tuple) else [value]
    counts = (item for item in items if isinstance(item, int) and not isinstance(item, bool))
    return tuple(item for item in counts if 0 <= item < 2**53)[:_MAX_IDS]


def _text(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _subject(name: str) -> Subject:
    return Subject(kind="config", name=name)

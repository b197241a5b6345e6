"""The forwards of one comparison: which sequences, padded, shifted or cached how, and why each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import thresholds
from ..record import NOT_ASKED
from .tokens import Tokens, filled

MAIN = "texts"
"""The pass by which nodes are measured; the others can only show a fault more."""
PURPOSES = {
    MAIN: "several languages, numbers and code",
    "padded": "sequences of one batch padded on the left, on the right and on both sides",
    "shifted": "a short text at position ids up to the longest context",
    "decode": "single tokens with a KV cache",
    "window": "a sequence longer than the attention's window and a chunk",
    "long": "a sequence of thousands of tokens",
    "image": "pictures through vision tower and projector, where the model takes images",
}
ALL, AUTO = "all", "auto"


@dataclass(frozen=True)
class Pass:
    """One forward of every stream.

    Attributes:
        name: `texts`, `padded`, ...; steps of decoding are `decode.0`, `decode.1`, ...
        ids: token ids, sequences of equal length.
        mask: 1 for a token, 0 for padding; None: no padding.
        positions: position ids; None: as the model counts them.
        cached: tokens that lie in the cache of the main pass before it; 0: a prefill.
        alone: whether only the reference runs it.
        given: arguments by name of what the skeleton's `entry` names; None: the forward on `ids`.
    """

    name: str
    ids: Sequence[Sequence[int]]
    mask: Sequence[Sequence[int]] | None = None
    positions: Sequence[Sequence[int]] | None = None
    cached: int = 0
    alone: bool = False
    given: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def mode(self) -> str:
        """`prefill` or `decode`."""
        return "decode" if self.cached else "prefill"

    @property
    def group(self) -> str:
        """What it is judged with: all steps of decoding together."""
        return self.name.partition(".")[0]

    @property
    def tokens(self) -> int:
        """Number of tokens that are no padding."""
        return sum(map(sum, self.mask)) if self.mask else sum(map(len, self.ids))


@dataclass(frozen=True)
class Plan:
    """What is run and what is not.

    Attributes:
        passes: the main one first, steps of decoding right after it.
        left_out: name -> why it is not run.
    """

    passes: Sequence[Pass]
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class Model:
    """What the choice of passes depends on.

    Attributes:
        config: of the skeleton.
        weights: elements that one token meets, without embedding and experts that it is not sent to.
        window: tokens that the narrowest limited attention sees; 0 where none is limited.
        positions: whether the forward takes position ids.
    """

    config: Mapping[str, Any]
    weights: int
    window: int
    positions: bool


def plan_passes(model: Model, tokens: Tokens, text: Sequence[int], wanted: str) -> Plan:
    """The passes for a model.

    Args:
        model: see above.
        tokens: of the main pass.
        text: token ids of running text, as many as there are; used from the start, again and again.
        wanted: `auto`: those whose work is not out of proportion; `all`; or names with commas. The main pass
            always runs.
    """
    made: dict[str, list[Pass] | str] = {
        "decode": _decode(tokens, text),
        "padded": _padded(model, tokens),
        "shifted": _shifted(model, tokens),
        "window": _window(model, text),
        "long": _long(model, text),
    }
    passes, left_out = [Pass(MAIN, (tuple(tokens.ids),))], {}
    for name, found in made.items():
        reason = found if isinstance(found, str) else _unwanted(name, found, model, wanted)
        if reason:
            left_out[name] = reason
        elif not isinstance(found, str):
            passes += found
    return Plan(tuple(passes), left_out)


def wants(name: str, wanted: str) -> bool:
    """Whether a list of prompts holds the name, or is one that holds all which cost little."""
    return wanted in (ALL, AUTO) or name in [part.strip() for part in wanted.split(",")]


def unknown_names(wanted: str) -> Sequence[str]:
    """Names in a list of prompts that are none."""
    if wanted in (ALL, AUTO):
        return ()
    return tuple(name for name in wanted.split(",") if name.strip() not in PURPOSES)


def _unwanted(name: str, passes: Sequence[Pass], model: Model, wanted: str) -> str:
    if wanted == ALL:
        return ""
    if wanted != AUTO:
        return "" if wants(name, wanted) else NOT_ASKED
    work = model.weights * sum(one.tokens for one in passes)
    if work <= thresholds.NUMERICS_PROMPT_WORK or name in ("decode", "padded", "shifted"):
        return ""
    return (
        f"{work / 1e12:.1f}e12 multiplications on each of four streams, more than are run unasked; "
        f"--prompts all runs it"
    )


def _decode(tokens: Tokens, text: Sequence[int]) -> list[Pass]:
    steps = filled(text, thresholds.NUMERICS_DECODE_STEPS)
    return [
        Pass(f"decode.{step}", ((token,),), cached=len(tokens.ids) + step) for step, token in enumerate(steps)
    ]


def _short(model: Model) -> int:
    """Tokens of a short sequence."""
    work = model.weights * 9 * thresholds.NUMERICS_SHORT_TOKENS
    few = work > thresholds.NUMERICS_SHORT_WORK
    return thresholds.NUMERICS_FEW_TOKENS if few else thresholds.NUMERICS_SHORT_TOKENS


def _padded(model: Model, tokens: Tokens) -> list[Pass] | str:
    length = min(_short(model), len(tokens.ids) // 2)
    if length < 4:
        return "the model takes too few positions"
    pad, half = model.config.get("pad_token_id"), length // 4
    padding = pad if type(pad) is int and pad >= 0 else 0
    ids, mask, positions = [], [], []
    for row, before in enumerate((2 * half, 0, half)):
        words = tokens.ids[row : row + length]
        after = 2 * half - before
        ids.append((*[padding] * before, *words, *[padding] * after))
        mask.append((*[0] * before, *[1] * length, *[0] * after))
        # As transformers' generate counts them: padding before the text does not move it.
        positions.append((*[0] * before, *range(length), *[length - 1] * after))
    return [Pass("padded", tuple(ids), tuple(mask), tuple(positions))]


def _shifted(model: Model, tokens: Tokens) -> list[Pass] | str:
    longest, length = longest_context(model.config), _short(model)
    if not model.positions:
        return "the model takes no position ids"
    if longest < 4 * length:
        return f"the longest context is {longest or 'not stated'}"
    words = tuple(tokens.ids[:length])
    starts = sorted({longest // 4, longest // 2, longest - len(words)})
    positions = tuple(tuple(range(start, start + len(words))) for start in starts)
    return [Pass("shifted", (words,) * len(starts), positions=positions)]


def _window(model: Model, text: Sequence[int]) -> list[Pass] | str:
    if not model.window:
        return "no attention of the model is limited to a window"
    length = model.window + thresholds.NUMERICS_CHUNK_TOKENS
    longest = longest_context(model.config)
    if longest and length > longest:
        return f"the window of {model.window} is not shorter than the longest context {longest}"
    return [Pass("window", (filled(text, length),))]


def _long(model: Model, text: Sequence[int]) -> list[Pass] | str:
    longest, length = longest_context(model.config), thresholds.NUMERICS_LONG_TOKENS
    if longest and longest < length:
        return f"the longest context is {longest}"
    return [Pass("long", (filled(text, length),))]


def longest_context(config: Mapping[str, Any]) -> int:
    """Positions that the model takes, as its config states them; 0 where it does not."""
    text = config.get("text_config")
    parts = (text, config) if isinstance(text, Mapping) else (config,)
    limits = [
        part[key]
        for part in parts
        for key in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
        if type(part.get(key)) is int and part[key] > 0
    ]
    return min(limits, default=0)

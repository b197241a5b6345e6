"""The small files of a release that inventory reads as text: read side by side, each within its limit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from day0.adapters.base.errors import AccessError, SourceError, UnansweredError
from day0.adapters.base.source import Source, SourceFile
from day0.adapters.base.values import Anomaly

READERS = 16  # as many requests in flight as for headers
# What is read, and up to which size: the largest published ones have 3.1 MB (hf_quant_config.json) and some
# 35 MB (tokenizer.json); a larger file is named and left unread.
_WANTED: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"(hf_quant_config|quantize_config|quant_config)\.json"), 16_000_000),
    (re.compile(r"quant_model_description[^/]*\.json"), 50_000_000),
    (re.compile(r"(generation_config|tokenizer_config|special_tokens_map|added_tokens)\.json"), 10_000_000),
    (re.compile(r"(tokenizer|vocab|tekken)\.json"), 50_000_000),
    (re.compile(r"(merges|vocab)\.txt"), 20_000_000),
    (re.compile(r"tiktoken\.model|[^/]*\.tiktoken|(tokenizer|spiece|sentencepiece[^/]*)\.model"), 20_000_000),
    (re.compile(r"(chat_template\.(json|jinja)|additional_chat_templates/[^/]+\.jinja)"), 2_000_000),
    (re.compile(r"(preprocessor_config|processor_config|video_preprocessor_config)\.json"), 2_000_000),
    (re.compile(r"README\.md|LICENSE[^/]*"), 2_000_000),
    (re.compile(r"([^/]+/)?[^/]+\.py"), 2_000_000),
)  # fmt: skip
MAX_TEXT_BYTES = 96_000_000  # of all texts together, so that the whole inventory stays below 500 MB
MAX_TEXTS = 200  # files; a release that carries more code than that has the rest named


@dataclass(frozen=True)
class Texts:
    """What was read.

    Attributes:
        held: path -> bytes of the file, not decoded.
        anomalies: files that are too large, too many or unreadable.
    """

    held: Mapping[str, bytes]
    anomalies: Sequence[Anomaly] = ()


def read_texts(source: Source | None) -> Texts:
    """Reads all small files that inventory knows what to do with; nothing for a bare config.

    Raises:
        InputError: the source refuses or cannot be reached.
    """
    if source is None:
        return Texts({})
    wanted = [(file, limit) for file in source.files() if (limit := _limit(file.path)) is not None]
    left = [_left_out(file.path, f"has {file.size:,} bytes, more than {limit:,}")
            for file, limit in wanted if file.size > limit]  # fmt: skip
    small: list[SourceFile] = []
    held_bytes = 0
    for file, limit in sorted(wanted, key=lambda item: (item[0].size, item[0].path)):
        if file.size > limit:
            continue
        held_bytes += file.size
        if len(small) == MAX_TEXTS or held_bytes > MAX_TEXT_BYTES:
            why = f"is beyond the first {MAX_TEXTS:,} files or {MAX_TEXT_BYTES:,} bytes, smallest first"
            left.append(_left_out(file.path, why))
            continue
        small.append(file)
    with ThreadPoolExecutor(READERS, thread_name_prefix="texts") as pool:
        read = list(pool.map(lambda file: _read(source, file), small))
    held = {file.path: data for file, data in zip(small, read, strict=True) if isinstance(data, bytes)}
    return Texts(held, (*left, *(item for item in read if isinstance(item, Anomaly))))


def _limit(path: str) -> int | None:
    return next((limit for pattern, limit in _WANTED if pattern.fullmatch(path)), None)


def _read(source: Source, file: SourceFile) -> bytes | Anomaly:
    try:
        return source.read(file.path)
    except UnansweredError as error:
        message = f"{file.path} was not handed out, what it says is not known: {error.message}"
        return Anomaly(code="text_unanswered", subject=file.path, message=message, evidence=file.path)
    except (SourceError, AccessError) as error:
        return _left_out(file.path, f"cannot be read: {error.message}")


def _left_out(path: str, why: str) -> Anomaly:
    return Anomaly(code="text_left_out", subject=path, message=f"{path} {why}", evidence=path)

"""Files that two releases of one name share and that hold something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from .record import InventoryFacts
from .structural_change import Changed
from .tensor_changes import one_is_announced

CONTENT = "content of "
"""How the name of such a change begins; the file's path follows."""
THERE = "there"
"""What stands for a file of unknown content."""
_MOST_NAMES = 5
_TOPICS = (
    (re.compile(r"\.py$"), "code"),
    (
        re.compile(
            r"(^|/)(tokenizer|tokenizer_config|vocab|added_tokens|special_tokens_map|tekken)\.json$|"
            r"(^|/)(merges|vocab)\.txt$|\.tiktoken$|\.model$|chat_template|\.jinja$"
        ),
        "tokenizer",
    ),
)


def content_changes(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    """Every file whose content is known on both sides and differs, and small files that came or went."""
    if one_is_announced(before, after):
        return
    old, new = _shards(before), _shards(after)
    for path in sorted(old.keys() & new.keys()):
        if _differ(old[path], new[path]):
            yield Changed(topic="weights", name=f"{CONTENT}{path}", before=old[path], after=new[path])
    if len(old) == len(new) and old.keys() != new.keys():  # another number is told as such
        gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        yield Changed(topic="files", name="weight files", before=gone[:_MOST_NAMES], after=come[:_MOST_NAMES])
    yield from _small_files(before, after)


def uncompared(before: InventoryFacts, after: InventoryFacts) -> Sequence[str]:
    """Weight files that both have and of which no hash is known on both sides."""
    if before.identity.weights_digest == after.identity.weights_digest:
        return ()
    old, new = _shards(before), _shards(after)
    return [path for path in sorted(old.keys() & new.keys()) if not _comparable(old[path], new[path])]


def _small_files(before: InventoryFacts, after: InventoryFacts) -> Iterator[Changed]:
    old, new = ({file.path: file.content for file in facts.small_files} for facts in (before, after))
    if not old or not new:  # a record of an earlier version, or a release of weights alone
        return
    told = {"config.json"} if before.config != after.config else set()  # key by key
    for path in sorted((old.keys() | new.keys()) - told):
        gone, come = path not in new, path not in old
        if gone or come or _differ(old[path], new[path]):
            yield Changed(
                topic=_topic(path),
                name=f"{CONTENT}{path}",
                before=None if come else old[path] or THERE,
                after=None if gone else new[path] or THERE,
            )


def _shards(facts: InventoryFacts) -> Mapping[str, str]:
    """Path -> hash: the source's, else the one that verification computed; empty for none."""
    read = facts.verification.shards if facts.verification is not None else ()
    verified = {shard.path: f"sha256:{shard.sha256}" for shard in read if shard.sha256}
    return {shard.path: shard.content or verified.get(shard.path, "") for shard in facts.shards}


def _comparable(before: str, after: str) -> bool:
    """Whether both are hashes of one kind."""
    kinds = [content.partition(":")[0] for content in (before, after)]
    return bool(kinds[0]) and kinds[0] == kinds[1]


def _differ(before: str, after: str) -> bool:
    return _comparable(before, after) and before != after


def _topic(path: str) -> str:
    return next((topic for pattern, topic in _TOPICS if pattern.search(path)), "files")

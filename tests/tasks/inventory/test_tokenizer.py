"""The tokenizer of a release: vocabulary against rows, special tokens against configs, chat templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.checkpoints.release import open_release
from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.raw_checkpoints import write_filled
from support.small_releases import MIXTRAL

CODES = {f"INV{number:03d}" for number in range(60, 67)}
ADDED = [{"id": 98, "content": "<s>", "special": True}, {"id": 99, "content": "</s>", "special": True}]
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "tokenizer_class": "PreTrainedTokenizerFast"}
GENERATION = {"bos_token_id": 98, "eos_token_id": 99}


def tokenizer(entries: int = 98, added: list[dict[str, Any]] | None = None) -> str:
    vocabulary = {f"t{i}": i for i in range(entries)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return json.dumps({"model": model, "added_tokens": ADDED if added is None else added})


def take(
    folder: Path, rows: int = 100, config: dict[str, Any] | None = None, **files: Any
) -> InventoryRecord:
    """The inventory of an embedding and a head of so many rows beside these files (`a__b` for `a.b`)."""
    write_filled(
        folder / "model.safetensors",
        {"model.embed_tokens.weight": ("BF16", (rows, 32)), "lm_head.weight": ("BF16", (rows, 32)),
         "model.layers.0.mlp.up_proj.weight": ("BF16", (8, 32))},
    )  # fmt: skip
    stated = MIXTRAL | {"model_type": "llama", "num_hidden_layers": 1, "vocab_size": rows} | (config or {})
    (folder / "config.json").write_text(json.dumps(stated))
    for name, content in files.items():
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        place = folder / name.replace("__", ".")
        place.write_bytes(text) if isinstance(text, bytes) else place.write_text(text)
    return take_inventory(open_release(str(folder)))


def said(record: InventoryRecord, code: str = "") -> list[Finding]:
    return [finding for finding in record.findings if finding.code in ({code} if code else CODES)]


def test_a_whole_tokenizer_raises_nothing(tmp_path: Path) -> None:
    record = take(tmp_path, tokenizer__json=tokenizer(), tokenizer_config__json=CONFIG,
                  generation_config__json=GENERATION, config={"eos_token_id": 99})  # fmt: skip
    assert said(record) == []
    held = record.facts.tokenizer
    assert held is not None
    assert (held.kind, held.base_tokens, held.added_tokens, held.tokens, held.ids) == ("bpe", 98, 2, 100, 100)
    assert (held.embedding_rows, held.head_rows, held.config_vocab_size) == (100, 100, 100)
    assert [(token.id, token.text, token.use) for token in held.special_tokens] == [
        (98, "<s>", "bos"), (99, "</s>", "eos"),
    ]  # fmt: skip
    assert {(item.source, tuple(item.ids)) for item in held.stated_ids if item.use == "eos"} == {
        ("config.json#/eos_token_id", (99,)),
        ("generation_config.json#/eos_token_id", (99,)),
        ("tokenizer_config.json#/eos_token", (99,)),
    }


def test_padded_rows_are_no_fault(tmp_path: Path) -> None:
    assert said(take(tmp_path, rows=128, tokenizer__json=tokenizer())) == []


def test_ids_without_a_row_are_an_error(tmp_path: Path) -> None:
    record = take(tmp_path, rows=96, tokenizer__json=tokenizer())
    (finding,) = said(record, "INV061")
    assert finding.severity == "error"
    assert "ids up to 99 (100 tokens), the embedding has 96 rows: 4 ids have none" in finding.message


def test_added_tokens_of_the_config_count(tmp_path: Path) -> None:
    decoder = {"added_tokens_decoder": {"100": {"content": "<image>", "special": True}}}
    record = take(tmp_path, tokenizer__json=tokenizer(), tokenizer_config__json=CONFIG | decoder)
    assert [finding.severity for finding in said(record, "INV061")] == ["error"]


@pytest.mark.parametrize(
    ("config", "generation", "severity"),
    [
        ({"eos_token_id": 99}, {"eos_token_id": [97, 99]}, None),
        ({"eos_token_id": [97, 99]}, {"eos_token_id": 99}, None),
        ({"eos_token_id": 97}, {"eos_token_id": [97]}, "warning"),  # the tokenizer's 99 never ends a text
        ({"eos_token_id": 99}, {"bos_token_id": 98}, "warning"),  # no end at all
        ({}, {"eos_token_id": 99}, None),
        ({"bos_token_id": 1}, GENERATION, "warning"),
        ({"pad_token_id": 1}, {"pad_token_id": 2, "eos_token_id": 99}, "info"),
        ({"pad_token_id": -1}, GENERATION, None),
        ({"eos_token_id": None}, GENERATION, None),
    ],
)
def test_ends_and_beginnings_against_each_other(
    tmp_path: Path, config: dict[str, Any], generation: dict[str, Any], severity: str | None
) -> None:
    record = take(tmp_path, tokenizer__json=tokenizer(), tokenizer_config__json=CONFIG,
                  generation_config__json=generation, config=config)  # fmt: skip
    assert [finding.severity for finding in said(record, "INV062")] == ([severity] if severity else [])


def test_an_id_out_of_the_vocabulary_is_an_error(tmp_path: Path) -> None:
    record = take(
        tmp_path, tokenizer__json=tokenizer(), generation_config__json={}, config={"pad_token_id": 100}
    )
    (finding,) = said(record, "INV063")
    assert (
        finding.message
        == "config.json#/pad_token_id states 100; the vocabulary has 100 rows, the last id is 99"
    )
    assert finding.severity == "error"
    (Path(tmp_path) / "generation_config.json").unlink()
    (finding,) = said(take(tmp_path, tokenizer__json=tokenizer(), config={"pad_token_id": 100}), "INV063")
    assert finding.severity == "warning"


def test_one_id_with_two_texts(tmp_path: Path) -> None:
    record = take(tmp_path, tokenizer__json=tokenizer(), added_tokens__json={"<other>": 99})
    (finding,) = said(record, "INV062")
    assert "id has two texts: 99: '</s>' in tokenizer.json, '<other>' in added_tokens.json" in finding.message


@pytest.mark.parametrize(
    ("files", "severity"),
    [({}, "info"), ({"README__md": "# A model"}, "warning"), ({"tokenizer_config__json": CONFIG}, "warning")],
)
def test_no_tokenizer(tmp_path: Path, files: dict[str, Any], severity: str) -> None:
    assert [finding.severity for finding in said(take(tmp_path, **files), "INV060")] == [severity]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"version https://git-lfs.github.com/spec/v1\n",
        b"[" * 90_000,
        b'{"model": {"vocab": {"a": "b"}}}',
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, data: bytes) -> None:
    record = take(tmp_path, tokenizer__json=data)
    assert [(finding.severity, finding.subject.name) for finding in said(record)] == [
        ("error", "tokenizer.json")
    ]


@pytest.mark.parametrize(
    ("template", "mentions", "error"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", [], ""),
        (
            "{% if tools %}{{ tools }}{% endif %}{% if enable_thinking %}x{% endif %}",
            ["tools", "thinking"],
            "",
        ),
        ("{% generation %}{{ x }}{% endgeneration %}{% for i in y %}{% break %}{% endfor %}", [], ""),
        ("{% if messages[0]['role'] == 'system' %}{% endif %}<think>", ["thinking", "system"], ""),
        ("{% for m in messages %}", [], "line 1"),
        ("{{ " + "(" * 50_000, [], "nested too deeply"),
        ("{{ ''.__class__.__mro__ }}", [], ""),
    ],
)
def test_templates_are_parsed_and_not_rendered(
    tmp_path: Path, template: str, mentions: list[str], error: str
) -> None:
    record = take(tmp_path, tokenizer__json=tokenizer(), chat_template__jinja=template)
    assert record.facts.tokenizer is not None
    (held,) = record.facts.tokenizer.chat_templates
    assert (held.source, list(held.mentions)) == ("chat_template.jinja", mentions)
    assert error in held.error
    assert bool(held.error) is bool(error)
    assert [finding.severity for finding in said(record, "INV065")] == ["warning"] * bool(error)


def test_templates_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")
    listed = [{"name": "default", "template": "{{ a }}"}, {"name": "tool_use", "template": "{{ tools }}"}]
    config = CONFIG | {"chat_template": listed}
    record = take(
        tmp_path, tokenizer__json=tokenizer(), tokenizer_config__json=config, chat_template__jinja="{{ b }}"
    )
    assert record.facts.tokenizer is not None
    names = [(item.name, list(item.mentions)) for item in record.facts.tokenizer.chat_templates]
    assert names == [("default", []), ("tool_use", ["tools"]), ("rag", ["documents"]), ("default", [])]
    (finding,) = said(record, "INV065")
    assert "2 default chat templates differ" in finding.message


@pytest.mark.parametrize(
    ("name", "told"), [("Llama-9-8B-Instruct", True), ("gemma-9-it", True), ("Llama-9", False)]
)
def test_a_chat_model_without_a_template(tmp_path: Path, name: str, told: bool) -> None:
    folder = tmp_path / name
    folder.mkdir()
    record = take(folder, tokenizer__json=tokenizer())
    assert [finding.severity for finding in said(record, "INV064")] == ["info"] * told


def test_an_added_token_with_another_id_than_in_the_vocabulary(tmp_path: Path) -> None:
    decoder = {"3": {"content": "t2", "special": True}, "98": {"content": "<s>"}}
    record = take(tmp_path, tokenizer__json=tokenizer(),
                  tokenizer_config__json={**CONFIG, "added_tokens_decoder": decoder})  # fmt: skip
    (finding,) = [item for item in said(record, "INV062") if "with two ids" in item.message]
    assert "the first is 't2': 2 in the vocabulary, 3 in tokenizer_config.json" in finding.message


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ("2", "'2'"),
        (1.5, "'1.5'"),
        (True, "'True'"),
        ([99, {}], "a list or an object"),
        (2**60, "a number too large"),
        (-1, ""),
        (None, ""),
        ([98, 99], ""),
    ],
)
def test_a_statement_that_is_no_id(tmp_path: Path, stated: Any, told: str) -> None:
    record = take(tmp_path, tokenizer__json=tokenizer(), config={"pad_token_id": stated})
    found = [item.message for item in said(record, "INV062") if "is no id" in item.message]
    assert found == ([f"config.json#/pad_token_id states {told}, which is no id of a token"] if told else [])


def test_ids_beyond_the_vocabulary_of_the_config(tmp_path: Path) -> None:
    record = take(tmp_path, tokenizer__json=tokenizer(), config={"vocab_size": 90})
    (finding,) = said(record, "INV061")
    assert (finding.severity, "10 ids are beyond it" in finding.message) == ("warning", True)

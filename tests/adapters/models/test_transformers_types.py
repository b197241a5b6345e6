"""The shipped table of model types, and how it is read off a release's source."""

from __future__ import annotations

import pytest

from day0.adapters.models.collect_transformers_types import model_types, table_of
from day0.adapters.models.transformers_types import minor_key, type_support

_OLDEST = """
CONFIG_MAPPING = OrderedDict([("retribert", RetriBertConfig,), ("t5", T5Config,)])
"""
_MIDDLE = """
CONFIG_MAPPING_NAMES = OrderedDict(
    [("llama", "LlamaConfig"), ("t5", "T5Config")]
)
OTHER = OrderedDict([("nothing", "Of it")])
"""
_NEWEST = """
from .auto_mappings import CONFIG_MAPPING_NAMES
CONFIG_MAPPING_NAMES.update({"openai-gpt": "OpenAIGPTConfig"})
CONFIG_MAPPING_NAMES = OrderedDict(**{"gpt-sw3": "GPT2Config"}, **CONFIG_MAPPING_NAMES)
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [(_OLDEST, {"retribert", "t5"}), (_MIDDLE, {"llama", "t5"}), (_NEWEST, {"openai-gpt", "gpt-sw3"})],
)
def test_types_of_every_form_of_the_mapping(source: str, expected: set[str]) -> None:
    assert model_types([source]) == expected


def test_first_and_last_release() -> None:
    table = table_of({"4.10": ["a", "b"], "4.9": ["a"], "5.0": ["b", "c"]})
    assert table["checked"] == ["4.9", "4.10", "5.0"]
    assert table["since"] == {"a": "4.9", "b": "4.10", "c": "5.0"}
    assert table["dropped"] == {"a": "5.0"}


# Release notes of transformers: Llama came with 4.28, DeepSeek-V3 with 4.51, gpt-oss with 4.55.
@pytest.mark.parametrize(
    ("model_type", "since"),
    [("bert", "4.0"), ("llama", "4.28"), ("mixtral", "4.36"), ("deepseek_v3", "4.51"), ("gpt_oss", "4.55"),
     ("qwen3_next", "4.57"), ("mimo", ""), ("", "")],
)  # fmt: skip
def test_shipped_table(model_type: str, since: str) -> None:
    found = type_support(model_type)
    assert found.since == since
    assert not found.dropped
    assert minor_key(found.newest) >= (5, 24)


def test_dropped_types() -> None:
    assert type_support("transfo-xl").dropped == "5.0"

"""The front matter of model cards, as far as cards use YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from day0.adapters.sources.model_card import front_matter, texts_of

CARD = b"""---
license: apache-2.0  # as the paper says
license_link: "https://example.org/LICENSE#terms"
base_model:
- acme/base
  - 'acme/other'
datasets: [a/b, "c/d"]
language:
  - en
tags:
model-index:
  - name: x
    results:
      - task: y
license_name: >-
  acme terms
  of use
pipeline_tag: text-generation
---
# Title
license: mit
"""


def test_what_cards_state() -> None:
    card = front_matter(CARD)
    assert texts_of(card, "license") == ("apache-2.0",)
    assert texts_of(card, "license_link") == ("https://example.org/LICENSE#terms",)
    assert texts_of(card, "base_model") == ("acme/base", "acme/other")
    assert texts_of(card, "datasets") == ("a/b", "c/d")
    assert texts_of(card, "language") == ("en",)
    assert texts_of(card, "tags") == ()
    assert texts_of(card, "license_name") == ("acme terms\nof use",)
    assert texts_of(card, "pipeline_tag") == ("text-generation",)


@pytest.mark.parametrize(
    "data", [b"", b"# no card", b"---\n", b"\xff\xfe---\nlicense: mit\n---", b"--- x\nlicense: mit"]
)
def test_no_front_matter(data: bytes) -> None:
    assert front_matter(data) == {}


def test_windows_line_ends_and_a_byte_order_mark() -> None:
    assert front_matter(b"\xef\xbb\xbf---\r\nlicense: mit\r\n---\r\n") == {"license": "mit"}


@given(st.text(max_size=300))
def test_any_text_ends_in_a_mapping(text: str) -> None:
    assert isinstance(front_matter(f"---\n{text}".encode("utf-8", "replace")), dict)

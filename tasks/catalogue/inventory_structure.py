"""Findings of the inventory stage about structure, tokenizer, code and trust."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = ()

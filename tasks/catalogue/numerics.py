"""Findings of the numerics stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = ()

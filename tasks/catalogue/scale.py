"""Findings of the scale stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = ()

"""Findings of the minimal stage."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = ()

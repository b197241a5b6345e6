"""Findings of the inventory stage about quantisation: what is declared, stored, and left out."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = ()

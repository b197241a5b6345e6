"""Findings of the inventory stage about sources, reconciliation, staging and verification."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = ()

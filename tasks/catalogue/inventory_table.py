"""Findings of the inventory stage about the parameter table and memory per rank."""

from __future__ import annotations

from .entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "INV090", "layout not possible", "warning",
        "A layout that memory per rank was asked for cannot be had with this model: something that has to be "
        "split does not divide, or there is less of it than ranks.",
        "Choose degrees that divide what the message names; `day0 plan` looks for layouts that work.",
    ),
)  # fmt: skip

"""The one home of every threshold, each with its reason and source beside it."""

from __future__ import annotations

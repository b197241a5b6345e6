"""Version of a capture's content; raised whenever the same request would give another capture."""

from __future__ import annotations

CAPTURE_VERSION = 3

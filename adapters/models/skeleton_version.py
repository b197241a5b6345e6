"""Version of the skeleton's content; raised whenever the same release would give another skeleton."""

from __future__ import annotations

SKELETON_VERSION = 6

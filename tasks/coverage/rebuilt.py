"""What stands for a missing operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .impact import is_view


@dataclass(frozen=True)
class Rebuilt:
    """What stands for one call.

    Attributes:
        leaves: operator -> how often one call runs it; the target has all of them.
    """

    leaves: Mapping[str, int]

    @property
    def launches(self) -> int:
        """Kernels beyond the one that is replaced; views start none."""
        return max(0, sum(count for op, count in self.leaves.items() if not is_view(op)) - 1)

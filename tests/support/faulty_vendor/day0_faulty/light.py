"""A stack without torch, which starts in a tenth of a second; `generate` does what `?fault=` says."""

import os
from typing import Any

from day0_worker import Stack

from .actions import ACTIONS


class LightStack(Stack):
    name = "light"
    capabilities = ("generate",)

    def describe(self) -> dict[str, Any]:
        return {
            "capabilities": list(self.capabilities),
            "dtypes": {},
            "devices": [{"name": "none"}],
            "fingerprint": {"family": "light 1", "exact": {"light": "1.0"}},
        }

    def generate(self, tokens: list[list[int]], new_tokens: int) -> dict[str, Any]:
        fault = self.options.get("fault", "")
        if fault in ACTIONS:
            ACTIONS[fault]()
        if fault == "environment":
            return {"tokens": [], "environment": dict(os.environ), "directory": os.getcwd()}
        if fault == "no_json":
            return {"tokens": {1, 2}}
        if fault == "half_character":
            raise RuntimeError("no kernel for \ud83d")
        if fault == "not_finite":
            return {"tokens": [], "seconds": float("nan")}
        return {"tokens": [[7] * new_tokens for _ in tokens], "first_token_seconds": 0.1, "seconds": 0.2}

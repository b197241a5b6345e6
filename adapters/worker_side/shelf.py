"""Models without weights that a worker has built so far, one for each config, class, dtype and options."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Mapping

from day0_worker.modules import NodeModules
from day0_worker.stack import Stack, StackError


class ModuleShelf:
    """Builds each model on first use; nodes of one model share its caches.

    Args:
        device: torch device on which nodes run.
        options: of the target; those of a fragment go before them.
    """

    def __init__(self, device: str, options: Mapping[str, str]) -> None:
        self._device, self._options = device, dict(options)
        self._models: Dict[str, NodeModules] = {}

    def key(self, fragment: Mapping[str, Any]) -> str:
        """The key of the fragment's model, which is there afterwards.

        Raises:
            StackError: see `NodeModules`.
        """
        options = {**self._options, **fragment["options"]}
        what = [fragment["architecture"], fragment["config"], fragment["dtype"], options]
        key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
        if key not in self._models:
            self._models[key] = NodeModules(
                fragment["config"], fragment["architecture"], fragment["dtype"], options, self._device
            )
        return key

    def get(self, key: str) -> NodeModules:
        """The model of that key.

        Raises:
            StackError: nothing was prepared under it in this worker.
        """
        if key not in self._models:
            raise StackError(f"nothing was prepared under {key!r} in this worker")
        return self._models[key]

    def name_choices(self, key: str, stack: Stack) -> None:
        """Tells the stack's answer which implementations the model was built with."""
        config = self.get(key).model.config.get_text_config()
        for choice in ("attn", "experts"):
            chosen = getattr(config, f"_{choice}_implementation", None)
            if chosen:
                stack.used(choice, str(chosen))

    def forget(self, state: str) -> None:
        """Drops the sequence's caches in all models."""
        for modules in self._models.values():
            modules.forget(state)

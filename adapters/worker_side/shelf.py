"""Models without weights that a worker has built so far, one for each config, class, dtype and options."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping, Tuple

from day0_worker.bug_parts import Changes
from day0_worker.bugs import bugs_in, put
from day0_worker.modules import NodeModules
from day0_worker.stack import Stack, StackError


class ModuleShelf:
    """Builds each model on first use; nodes of one model share its caches.

    Models that differ only in the bugs put into them are one, changed whenever another of them is asked for.

    Args:
        device: torch device on which nodes run.
        options: of the target; those of a fragment go before them.
    """

    def __init__(self, device: str, options: Mapping[str, str]) -> None:
        self._device, self._options = device, dict(options)
        self._models: Dict[str, NodeModules] = {}
        self._bugged: Dict[str, Tuple[str, List[Tuple[str, str]]]] = {}
        self._changed: Dict[str, Tuple[str, List[Changes]]] = {}

    def key(self, fragment: Mapping[str, Any]) -> str:
        """The key of the fragment's model, which is there afterwards.

        Raises:
            StackError: see `NodeModules`, and `day0_worker.bugs.put`.
        """
        options = {**self._options, **fragment["options"]}
        bugs, plain = bugs_in(options)
        key = _digest(fragment, options)
        own = f"{_digest(fragment, plain)} with bugs" if bugs else key
        if own not in self._models:
            self._models[own] = NodeModules(
                fragment["config"], fragment["architecture"], fragment["dtype"], plain, self._device
            )
        if bugs:
            self._bugged[key] = (own, bugs)
            self.get(key)
        return key

    def get(self, key: str) -> NodeModules:
        """The model of that key.

        Raises:
            StackError: nothing was prepared under it in this worker.
        """
        own, bugs = self._bugged.get(key, (key, []))
        if own not in self._models:
            raise StackError(f"nothing was prepared under {key!r} in this worker")
        if bugs and self._changed.get(own, ("", []))[0] != key:
            self._change(own, key, bugs)
        return self._models[own]

    def _change(self, own: str, key: str, bugs: List[Tuple[str, str]]) -> None:
        for changes in reversed(self._changed.pop(own, ("", []))[1]):
            changes.undo()
        made: List[Changes] = []
        self._changed[own] = ("", made)
        for bug, node in bugs:
            made.append(put(self._models[own].model, bug, node))
        self._changed[own] = (key, made)

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


def _digest(fragment: Mapping[str, Any], options: Mapping[str, str]) -> str:
    what = [fragment["architecture"], fragment["config"], fragment["dtype"], options]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

"""What a target answers to all that it does not claim."""

from __future__ import annotations

from typing import Any, NoReturn


class Refusing:
    """Refuses every method of `Target` that belongs to a capability; a target overrides what it can do."""

    def refuse(self, capability: str) -> NoReturn:
        """Says that the capability is not claimed.

        Raises:
            UnsupportedError: E501, always.
        """
        raise NotImplementedError

    def prepare(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused, as are the next ones."""
        self.refuse("fragment")

    def run(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("fragment")

    def observe(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("observe")

    def start(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("parts")

    def resume(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("parts")

    def run_experts(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("parts")

    def report(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("fragment")

    def run_op(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("op")

    def run_ops(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("op")

    def load(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("model")

    def score(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("model")

    def train(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("grad")

    def launch(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        self.refuse("collectives")

    def forget(self, state: str) -> None:
        """Nothing is kept."""

    def drop(self, *args: Any, **kwargs: Any) -> None:
        """Nothing stands still."""

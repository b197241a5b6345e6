"""Which arguments the forward of a transformers class takes, without building the model."""

from __future__ import annotations

import inspect


def forward_takes(architecture: str, argument: str) -> bool:
    """Whether the class has a forward with an argument of that name; False for an unknown class."""
    import transformers

    found = getattr(transformers, architecture, None)
    forward = getattr(found, "forward", None)
    return forward is not None and argument in inspect.signature(forward).parameters

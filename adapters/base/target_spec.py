"""The target grammar: `STACK@DEVICE[:N][/DTYPE][?key=value&...]`; a server has no device to name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from .dtypes import BITS
from .errors import InputError
from .values import Value

_GRAMMAR = re.compile(
    r"(?P<stack>[a-z][a-z0-9_.-]*)"
    r"(?:@(?P<device>[a-z][a-z0-9_]*)(?::(?P<count>[1-9][0-9]{0,5}))?)?"
    r"(?:/(?P<dtype>[a-z0-9_]+))?"
    r"(?:\?(?P<options>.*))?"
)
_EXAMPLES = (
    "eager@cuda/bf16, onnxruntime@cpu/fp32, eager@npu:8/bf16, endpoint?url=http://host:8000/v1&model=NAME"
)
_WITHOUT_DEVICE = ("endpoint",)
"""What they run on is known to a server alone, so no device is said of them."""


class TargetSpec(Value):
    """What a model must run on, parsed.

    Attributes:
        stack: name of the execution stack, e.g. `eager`.
        device: torch device type, e.g. `cuda`; `cpu` where the grammar leaves it out.
        count: number of devices.
        dtype: short name of what it computes in, or None: the release's own. Weights and activations have it,
            too, or 16 bits where it has fewer.
        options: what follows `?`, e.g. `experts=grouped_mm`.
    """

    stack: str
    device: str = "cpu"
    count: int = 1
    dtype: str | None = None
    options: Mapping[str, str] = {}

    @classmethod
    def parse(cls, text: str) -> TargetSpec:
        """Reads one target.

        Raises:
            InputError: E110, the text does not follow the grammar or names no known dtype.
        """
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            raise InputError(
                f"target {text!r} is not of the form STACK@DEVICE[:N][/DTYPE][?key=value&...]",
                code="E110",
                remedy=f"Write it like one of: {_EXAMPLES}.",
            )
        dtype = match["dtype"]
        if dtype is not None and dtype not in BITS:
            raise InputError(
                f"target {text!r} names the dtype {dtype!r}, which is none of {', '.join(sorted(BITS))}",
                code="E110",
                remedy="Use one of these names.",
            )
        return cls(
            stack=match["stack"],
            device=match["device"] or "cpu",
            count=int(match["count"] or 1),
            dtype=dtype,
            options=dict(parse_qsl(match["options"] or "", keep_blank_values=True)),
        )

    @property
    def registry_name(self) -> str:
        """The `STACK@DEVICE` under which knowledge about operators is kept."""
        return f"{self.stack}@{self.device}"

    @property
    def slug(self) -> str:
        """The target as a file name: letters, digits, dots, dashes and underscores only."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", str(self)).strip("-")

    def __str__(self) -> str:
        text = self.stack if self.stack in _WITHOUT_DEVICE else f"{self.stack}@{self.device}"
        if self.count != 1:
            text += f":{self.count}"
        if self.dtype:
            text += f"/{self.dtype}"
        if self.options:
            text += "?" + urlencode(sorted(self.options.items()), safe=":/,")
        return text

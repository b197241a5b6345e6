"""Acme's ways around: an activation that its library lacks for some dtypes; no model is edited for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from day0_worker.workarounds import Workaround

from . import kernels


class AcmeSilu(Workaround):
    """The activation by Acme's own kernel, wherever a model calls torch's."""

    name = "acme_silu"
    replaces = ("aten.silu.default",)

    def operators(self) -> Mapping[str, Callable[..., Any]]:
        """See `Workaround`."""
        return {"aten.silu.default": kernels.silu}

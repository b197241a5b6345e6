"""A reference that dies of one operator and never returns from another."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from day0.tasks.coverage.reference_stack import ReferenceStack


class FaultyReference(ReferenceStack):
    """Dies of `cos`, hangs in `sin`."""

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = json.loads(args[0])["call"]["op"]
        if name == "aten.cos.default":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "aten.sin.default":
            time.sleep(3600)
        return super().run_op(op, args, kwargs)

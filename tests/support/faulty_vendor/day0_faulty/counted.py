"""Eager torch that writes down what it is asked: `?log=FILE[&hold=FILE]`.

Each call adds a line `VERB SUBJECT` to the log. Where the hold file names a verb (and a subject), that call
adds `holding PID` and waits until it is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from day0.adapters.targets.eager import EagerStack
from day0_worker import NodeRun


class CountedStack(EagerStack):
    name = "counted"

    def prepare(self, fragment: Mapping[str, Any], *args: Any, **kwargs: Any) -> str:
        self._told("prepare", fragment["node"])
        return super().prepare(fragment, *args, **kwargs)

    def run(self, job: NodeRun) -> Any:
        self._told("run", job.node)
        return super().run(job)

    def run_op(self, op: str, args: Any, kwargs: Any) -> Any:
        self._told("run_op", op)
        return super().run_op(op, args, kwargs)

    def load(self, folder: str, dtype: str) -> dict[str, Any]:
        self._told("load", "")
        return super().load(folder, dtype)

    def generate(self, tokens: list[list[int]], new_tokens: int) -> dict[str, Any]:
        self._told("generate", f"{len(tokens)}x{len(tokens[0])}")
        return super().generate(tokens, new_tokens)

    def launch(self, world_size: int, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        self._told("launch", f"{job.get('name', '')} {world_size}")
        return super().launch(world_size, job)

    def _told(self, verb: str, subject: str) -> None:
        line = f"{verb} {subject}".strip()
        with open(self.options["log"], "a") as log:
            log.write(line + "\n")
        hold = self.options.get("hold", "")
        if hold and os.path.exists(hold):
            with open(hold) as file:
                wanted = file.read().strip()
            if line == wanted or line.startswith(wanted + " "):
                with open(self.options["log"], "a") as log:
                    log.write(f"holding {os.getpid()}\n")
                time.sleep(600)

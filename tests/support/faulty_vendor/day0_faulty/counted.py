"""Eager torch that writes down what it is asked: `?log=FILE[&hold=FILE]`.

Each call adds a line `VERB SUBJECT` to the log. Where the hold file names a verb (and a subject), that call
adds `holding PID` and waits until it is killed.
"""

import os
import time

from day0.adapters.targets.eager import EagerStack


class CountedStack(EagerStack):
    name = "counted"

    def prepare(self, fragment, *args, **kwargs):
        self._told("prepare", fragment["node"])
        return super().prepare(fragment, *args, **kwargs)

    def run(self, job):
        self._told("run", job.node)
        return super().run(job)

    def run_op(self, op, args, kwargs):
        self._told("run_op", op)
        return super().run_op(op, args, kwargs)

    def load(self, folder, dtype):
        self._told("load", "")
        return super().load(folder, dtype)

    def generate(self, tokens, new_tokens):
        self._told("generate", f"{len(tokens)}x{len(tokens[0])}")
        return super().generate(tokens, new_tokens)

    def launch(self, world_size, job):
        self._told("launch", f"{job.get('name', '')} {world_size}")
        return super().launch(world_size, job)

    def _told(self, verb, subject):
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

"""`day0` as a process of its own with stand-in stages, for tests that kill it.

`STAND_IN_LOG` names a file that gets a line for each stage computed. The stage that `STAND_IN_BLOCKS` names
starts a child, writes that child's id to the log, and never ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from day0.flows import cli, stage_runs
from day0.tasks.job import RecordRef, StageJob
from support.stand_in_stages import StandIns

# Ends with its parent, as a worker does.
CHILD = f"import os, time\nwhile os.getppid() == {os.getpid()}: time.sleep(0.1)"
LOG = Path(os.environ["STAND_IN_LOG"])


class LoggedStandIns(StandIns):
    """Stand-ins that tell a file what they compute."""

    def stage_function(self, stage: str) -> Callable[..., RecordRef]:
        run = super().stage_function(stage)

        def told(job: StageJob, *upstream: RecordRef) -> RecordRef:
            name = f"{stage} {job.target}".strip()
            if name == os.environ.get("STAND_IN_BLOCKS"):
                child = subprocess.Popen([sys.executable, "-c", CHILD])
                tell(f"blocked {child.pid}")
                time.sleep(600)
            before = self.computed[name]
            reference = run(job, *upstream)
            if self.computed[name] > before:
                tell(name)
            return reference

        return told


def tell(line: str) -> None:
    with LOG.open("a") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    stand_ins = LoggedStandIns()
    stage_runs.stage_function = stand_ins.stage_function
    stage_runs.describe_target = stand_ins.describe  # type: ignore[assignment]  # a bound method does as well
    sys.exit(cli.main())

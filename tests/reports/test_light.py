"""Drawing, listing and comparing reports loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "prefect", "transformers", "numpy", "onnxruntime")


def test_the_report_room_loads_nothing_heavy() -> None:
    code = (
        "import sys, day0.reports.index, day0.reports.diff, day0.reports.regression\n"
        "import day0.reports.environment, day0.reports.as_json, day0.reports.catalogue_page\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.strip() == "[]"

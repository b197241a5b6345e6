"""What all tests share: `tests/support` on the path, and no test ever touches the person's own settings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
sys.path.insert(0, str(_TESTS))

for _name in [name for name in os.environ if name.startswith("DAY0_") or name == "COLUMNS"]:
    del os.environ[_name]
if "PYTEST_XDIST_WORKER" in os.environ:  # each with locks of devices of its own, which lie there
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="day0-tests-")
    tempfile.tempdir = None
# Read at import by the libraries concerned, so set before the first test module is loaded.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="day0-prefect-")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

pytest_plugins = [
    "support.clock",
    "support.local_hub",
    "support.object_server",
    "support.shared_checkpoints",
    "support.simulated_target",
    "support.tiny_releases",
    "support.faulty",
]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where `FAIL_ON_SKIP` is set, a skipped test fails the run: what CI does not try, it does not know."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("FAIL_ON_SKIP") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _torch_is_left_as_it_was() -> Iterator[None]:
    """What changes torch for the whole process would make later tests, and stages, compute otherwise."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        assert torch.get_default_dtype() == torch.float32
        assert not torch.are_deterministic_algorithms_enabled()

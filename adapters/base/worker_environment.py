"""Which environment variables a worker sees: no secrets, nothing of Prefect or of cloud accounts."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WITHHELD = re.compile(
    r"(^|_)(TOKENS?|APIKEY|KEYS?|SECRETS?|PASSWORD|PASSWD|PASS|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|DSN|NETRC)(_|$)"
    r"|SECRET|PASSWORD|^(PREFECT|AWS|AZURE|GOOGLE|GCP|DAY0|WANDB|PG|SSH|GPG|KUBE|OPENAI|ANTHROPIC)_|^PYTHONSTARTUP$"
    r"|DATABASE_URL|CONNECTION_(STRING|URL)",
    re.IGNORECASE,
)
_URL_WITH_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")

_SET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def worker_environment(parent: Mapping[str, str], home: str) -> dict[str, str]:
    """The environment of a worker.

    Args:
        parent: the parent's own.
        home: the worker's working directory.
    """
    passed = {
        name: value
        for name, value in parent.items()
        if not _WITHHELD.search(name) and not _URL_WITH_PASSWORD.search(value)
    }
    return {**passed, **_SET, "DAY0_WORKER_HOME": home}

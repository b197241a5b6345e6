"""The process that works out what a config implies: whatever happens to it is a reason and no error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from day0.adapters.models import expected_run
from day0.adapters.models.expected_run import Answer, ask_expected
from support.tiny_models import TINY


def answer(script: str, **more: Any) -> Answer:
    return ask_expected({"model_type": "llama"}, command=[sys.executable, "-c", script], **more)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit(3)", "ended with status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with status -11"),
        ("raise RuntimeError('no such thing')", "RuntimeError: no such thing"),
        ("print('not json')", "ended with status 0"),
        ('print(\'{"architecture":"x"}\')', "ended with status 0"),  # cut off before its end
    ],
)
def test_a_process_that_fails_is_a_reason(script: str, said: str) -> None:
    assert said in answer(script).reason


def test_one_that_hangs_is_ended() -> None:
    assert "more than 1 s" in answer("import time; time.sleep(60)", seconds=1).reason


def test_one_that_takes_too_much_memory_is_ended() -> None:
    script = "import time; x = b'x' * 300_000_000; time.sleep(60)"
    assert "more than 100000000 bytes" in answer(script, memory=100_000_000).reason


def test_one_that_talks_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_run, "MAX_ANSWER", 10_000)
    assert "10000 bytes" in answer("while True: print('[1]')").reason


def test_secrets_and_network_are_kept_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    script = (
        "import json, os; print(json.dumps({'reason': os.environ.get('HF_TOKEN', 'none') + ' ' + "
        "os.environ['HF_HUB_OFFLINE']})); print('null')"
    )
    assert answer(script).reason == "none 1"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "no_such_type"}, "is not known to transformers"),
        pytest.param(
            {"model_type": "own", "auto_map": {"AutoModel": "modeling.Own"}},
            "only the repository's code",
            marks=pytest.mark.slow,
        ),
        pytest.param({"model_type": "llama", "hidden_size": "many"}, "hidden_size", marks=pytest.mark.slow),
        pytest.param(
            {"model_type": "llama", "num_hidden_layers": 10**6}, "more than 4096", marks=pytest.mark.slow
        ),
    ],
)
def test_configs_that_build_nothing(config: dict[str, Any], said: str) -> None:
    assert said in ask_expected(config).reason


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["mixtral", "deepseek_v3", "qwen3_next"])
def test_published_names_are_those_that_are_saved(
    model_type: str, tiny_checkpoint: Callable[[str], Any]
) -> None:
    from day0.adapters.checkpoints.release import open_release

    release = open_release(str(tiny_checkpoint(model_type)))
    found = ask_expected(release.config, list(release.checkpoint.tensors))
    stored = {name: tuple(info.shape) for name, info in release.checkpoint.tensors.items()}
    assert {tensor.published: tensor.shape for tensor in found.tensors} == stored
    assert any(op == "aten.mm.default" for op, _, _ in found.operators)
    assert TINY[model_type]["vocab_size"] == found.tensors[0].shape[0]

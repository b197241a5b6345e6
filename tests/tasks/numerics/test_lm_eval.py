"""lm-evaluation-harness on the shipped questions, against our own count of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers

from day0.adapters.models.tokenizer import Tokenizer
from day0.tasks.numerics.task_metric.task_items import TASK, items, write_lm_eval_task
from day0.tasks.numerics.task_metric.task_metric import answers, by_logits, pairs_of
from support.tiny_models import TINY


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_harness_counts_what_we_count(tmp_path: Path) -> None:
    folder = _model(tmp_path / "model")
    harness = write_lm_eval_task(tmp_path / "harness")
    command = [
        sys.executable, "-m", "lm_eval", "run", "--include_path", str(harness), "--tasks", TASK,
        "--model", "hf", "--model_args", f"pretrained={folder},dtype=float32", "--device", "cpu",
        "--batch_size", "32", "--output_path", str(tmp_path / "out"),
    ]  # fmt: skip
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-2000:]
    (report,) = (tmp_path / "out").rglob("results_*.json")
    found = json.loads(report.read_text())["results"][TASK]
    assert found["acc,none"] == pytest.approx(_ours(folder), abs=1e-9)


def _model(folder: Path) -> Path:
    """A tiny random model with a tokenizer of the questions' own words."""
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    split = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    known = {"?": 0, "<s>": 1, "</s>": 2}
    for item in items():
        for choice in item.choices:
            for word, _ in split.pre_tokenize_str(item.context + choice):
                known.setdefault(word, len(known))
    made = FastTokenizer(models.WordLevel(known, unk_token="?"))
    made.pre_tokenizer = split
    fast = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?", eos_token="</s>", pad_token="</s>")
    fast.save_pretrained(folder)
    torch.manual_seed(9)
    config = AutoConfig.for_model(
        "llama", **TINY["llama"] | {"vocab_size": len(known), "initializer_range": 0.5}
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def _ours(folder: Path) -> float:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def forward(rows: Sequence[Sequence[int]]) -> Iterable[torch.Tensor]:
        with torch.no_grad():
            logits: torch.Tensor = model(torch.tensor(rows)).logits
        return logits

    tokenizer = Tokenizer(FastTokenizer.from_file(str(folder / "tokenizer.json")))
    made = items()
    pairs, owners = pairs_of(made, tokenizer)
    found = answers(by_logits(forward)(pairs), owners, made)
    return sum(right is True for right in found) / len(made)

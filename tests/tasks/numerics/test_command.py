from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.command import command_of
from day0.tasks.numerics.question import Question
from support.tiny_releases import TinyRelease


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ({}, []),
        ({"prompts": "window,long"}, ["--prompts", "window,long"]),
        # The prompts are the file's own, so they are not chosen again.
        ({"reference": "/a b/model.day0ref"}, ["--reference", "/a b/model.day0ref"]),
    ],
)
def test_the_command_asks_the_same_of_a_shell(
    asked: dict[str, str], more: list[str], tiny: Callable[[str], TinyRelease], tmp_path: Path
) -> None:
    model = tiny("llama")
    options = NumericsOptions(**asked)  # type: ignore[arg-type]  # text only
    question = Question(model.release, model.skeleton, RunStore(tmp_path), "Hello", asked=options)
    spec = TargetSpec.parse("eager@cpu/bf16?attn=eager&with=bug:norm_eps@model.norm")
    told = command_of(question, spec)
    assert shlex.split(told) == ["day0", "compare", str(model.folder), "--target", str(spec), *more]

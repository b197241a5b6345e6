"""A bundle is for targets with one attention: masks for another would fail a correct target."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.bundles.bundle import Bundle
from day0.tasks.numerics.bundles.bundle_attention import refuse_unknown_attention
from day0.tasks.numerics.bundles.bundle_capture import capture_bundle
from day0.tasks.numerics.bundles.bundle_task import opened_bundle
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from support.in_process_target import InProcessTarget
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
PROMPT = "Four words are here"
PLAIN, EAGER, SDPA = (f"eager@cpu/bf16{more}" for more in ("", "?attn=eager", "?attn=sdpa"))


def question(tiny: TinyRelease, store: Path, bundle: Bundle | None = None) -> Question:
    asked = NumericsOptions(prompts="texts")
    return Question(tiny.release, tiny.skeleton, RunStore(store), PROMPT, asked=asked, bundle=bundle)


def captured(tiny: TinyRelease, folder: Path, options: Mapping[str, str]) -> Path:
    path = folder / "reference.day0ref"
    capture_bundle(question(tiny, folder / "capture"), "bf16", options, path)
    return path


def without_attentions(path: Path) -> Path:
    """The bundle as versions wrote it that did not say with which attention the reference ran."""
    older = path.with_name("older.day0ref")
    with zipfile.ZipFile(path) as new, zipfile.ZipFile(older, "w", zipfile.ZIP_STORED) as old:
        for part in new.infolist():
            text = new.read(part)
            if part.filename == "bundle.json":
                head = json.loads(text)
                del head["attention"], head["own_attention"]
                text = json.dumps(head).encode()
            old.writestr(part.filename, text)
    return older


def refused(path: Path, tiny: TinyRelease, target: str) -> str:
    with pytest.raises(InputError) as told:
        opened_bundle(str(path), tiny.release, TargetSpec.parse(target), PROMPT).__exit__(None, None, None)
    assert told.value.code == "E196"
    return str(told.value)


@pytest.mark.parametrize(
    ("options", "right", "wrong", "words"),
    [
        ({}, (PLAIN, SDPA), EAGER, ("attention sdpa", "attention eager", "--attn eager")),
        ({"attn": "eager"}, (EAGER,), PLAIN, ("attention eager", "attention sdpa", "--attn sdpa")),
    ],
)
def test_a_target_with_another_attention_is_refused_and_one_with_the_same_passes(
    options: Mapping[str, str], right: tuple[str, ...], wrong: str, words: tuple[str, ...], tiny: Tiny,
    tmp_path: Path,
) -> None:  # fmt: skip
    llama = tiny("llama")
    path = captured(llama, tmp_path, options)
    said = refused(path, llama, wrong)
    assert all(word in said for word in words)
    for name in right:
        target = InProcessTarget(name)
        with opened_bundle(str(path), llama.release, target.spec, PROMPT) as bundle:
            record = measure_numerics(
                question(llama, tmp_path / name[5:9], bundle), target, target.describe()
            )
        assert {block.verdict for block in record.facts.blocks} == {"pass"}


def test_a_bundle_that_does_not_say_its_attention_is_for_the_option_that_it_was_captured_with(
    tiny: Tiny, tmp_path: Path
) -> None:
    llama = tiny("llama")
    for number, (options, right, wrong) in enumerate([({}, PLAIN, EAGER), ({"attn": "eager"}, EAGER, PLAIN)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        older = without_attentions(captured(llama, folder, options))
        with opened_bundle(str(older), llama.release, TargetSpec.parse(right), PROMPT) as bundle:
            assert (bundle.head.attention, bundle.head.own_attention) == ("", "")
        assert "the model's own attention" in refused(older, llama, wrong)


def test_an_attention_that_the_reference_follows_for_no_target_is_refused() -> None:
    for name in ("foo", "flash_attention_2"):
        with pytest.raises(InputError, match=f"the attention '{name}'") as told:
            refuse_unknown_attention(name)
        assert told.value.code == "E198"
    for name in ("", "eager", "sdpa"):
        refuse_unknown_attention(name)


def test_an_attention_that_the_model_lacks_is_refused_before_the_walk(tiny: Tiny, tmp_path: Path) -> None:
    """GPT-OSS has sinks, which torch's own kernel cannot do; transformers has it run eager alone."""
    with pytest.raises(InputError, match="does not run with the attention 'sdpa'") as told:
        captured(tiny("gpt_oss"), tmp_path, {"attn": "sdpa"})
    assert told.value.code == "E198"
    assert "eager" in told.value.remedy
    assert not list(tmp_path.iterdir())

"""A reference captured in a file stands for the reference, and refuses what it was not captured from."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.bundles.bundle import Bundle
from day0.tasks.numerics.bundles.bundle_capture import capture_bundle
from day0.tasks.numerics.bundles.bundle_task import opened_bundle
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record import Logits, NumericsRecord
from support.in_process_target import InProcessTarget, scaled
from support.quantising_target import Kernel, QuantisingTarget
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
ASKED = NumericsOptions(prompts="decode,padded")
BF16 = TargetSpec.parse("eager@cpu/bf16")
FP8 = TargetSpec.parse("quantising@cpu/fp8_e4m3")


def question(tiny: TinyRelease, store: Path, bundle: Bundle | None = None) -> Question:
    return Question(
        tiny.release, tiny.skeleton, RunStore(store), "Four words are here", asked=ASKED, bundle=bundle
    )


def without_reasons(logits: Logits | None) -> Logits:
    """What both ways have in common: why a prompt is not there has another reason with a bundle."""
    assert logits is not None
    prompts = [prompt.model_copy(update={"reason": ""}) for prompt in logits.prompts]
    return logits.model_copy(update={"prompts": prompts})


def measured(asked: Question, target: Any) -> NumericsRecord:
    return measure_numerics(asked, target, target.describe())


@pytest.fixture(scope="module", params=["llama", pytest.param("deepseek_v3", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest, tiny: Tiny) -> TinyRelease:
    return tiny(request.param)


@pytest.fixture
def file(model: TinyRelease, tmp_path: Path) -> Path:
    path = tmp_path / "reference.day0ref"
    capture_bundle(question(model, tmp_path / "capture"), "bf16", {}, path)
    return path


def test_against_a_bundle_a_target_is_judged_as_against_the_reference(
    model: TinyRelease, file: Path, tmp_path: Path
) -> None:
    layer = next(node.name for node in model.skeleton.nodes if node.role == "layer")
    for faults in ({}, {layer: scaled(1.05)}):
        walked = measured(question(model, tmp_path / "walk"), InProcessTarget("eager@cpu/bf16", faults))
        with Bundle(file) as bundle:
            asked = question(model, tmp_path / "bundle", bundle)
            given = measured(asked, InProcessTarget("eager@cpu/bf16", faults))
        assert [block.name for block in given.facts.blocks] == [block.name for block in walked.facts.blocks]
        assert given.facts.blocks == walked.facts.blocks
        assert without_reasons(given.facts.logits) == without_reasons(walked.facts.logits)
        assert given.facts.decode == walked.facts.decode
        assert given.facts.routing == walked.facts.routing
        assert given.facts.reference.endswith("captured")
        assert given.facts.reference_check.state == "pass"
        assert given.verdict == walked.verdict


def test_against_a_bundle_for_fp8_the_modelled_noise_is_that_of_the_walk(
    model: TinyRelease, tmp_path: Path
) -> None:
    path = tmp_path / "fp8.day0ref"
    head = capture_bundle(question(model, tmp_path / "capture"), "fp8_e4m3", {}, path)
    assert (head.dtype, head.precision, head.computes_in) == ("bf16", "fp8_e4m3", "fp8_e4m3")

    def target() -> QuantisingTarget:
        return QuantisingTarget("quantising@cpu/fp8_e4m3?experts=eager", Kernel("fp8_e4m3"))

    walked = measured(question(model, tmp_path / "walk"), target())
    with opened_bundle(str(path), model.release, FP8, "Four words are here") as bundle:
        given = measured(question(model, tmp_path / "bundle", bundle), target())
    assert given.facts.blocks == walked.facts.blocks
    assert given.facts.noise == walked.facts.noise
    assert [finding.code for finding in given.findings if finding.code == "NUM032"] == ["NUM032"]
    with pytest.raises(InputError) as refused:
        opened_bundle(str(path), model.release, BF16, "Four words are here")
    assert refused.value.code == "E196"


def test_a_prompt_that_was_not_captured_is_said_not_to_be_in_the_bundle(
    model: TinyRelease, file: Path, tmp_path: Path
) -> None:
    with Bundle(file) as bundle:
        given = measured(question(model, tmp_path / "bundle", bundle), InProcessTarget("eager@cpu/bf16"))
    assert given.facts.logits is not None
    reasons = {prompt.name: prompt.reason for prompt in given.facts.logits.prompts}
    assert reasons["padded"] == ""
    assert reasons["shifted"] == "it is not in the bundle, whose capture said: not asked for"
    told = {found.subject.name: found.message for found in given.findings if found.code == "NUM019"}
    assert told["shifted"] == f"The prompt shifted did not run: {reasons['shifted']}."


def test_what_is_known_of_a_target_is_not_asked_again(model: TinyRelease, file: Path, tmp_path: Path) -> None:
    for runs in (True, False):
        target = InProcessTarget("eager@cpu/bf16")
        with Bundle(file) as bundle:
            measured(question(model, tmp_path / "bundle", bundle), target)
        assert bool(target.runs) is runs


def changed(model: TinyRelease, folder: Path, name: str) -> TinyRelease:
    shutil.copytree(model.folder, folder)
    for shard in sorted(folder.glob("*.safetensors")):
        tensors = load_file(shard)
        if name in tensors:
            value = tensors[name].clone()
            value.view(-1)[3] += 0.25
            save_file(tensors | {name: value}, shard, metadata={"format": "pt"})
    return TinyRelease(folder)


def test_changed_weights_are_told_at_their_node_and_the_rest_is_compared(
    model: TinyRelease, file: Path, tmp_path: Path
) -> None:
    node = [node for node in model.skeleton.nodes if node.role == "layer"][1]
    tensor = next(name for recipe in node.weights.values() for name in recipe.tensors)
    other = changed(model, tmp_path / "other", tensor)
    with opened_bundle(str(file), other.release, BF16, "Four words are here") as bundle:
        record = measured(question(other, tmp_path / "store", bundle), InProcessTarget("eager@cpu/bf16"))
    verdicts = {block.name: block.verdict for block in record.facts.blocks}
    assert verdicts.pop(node.name) == "unverified"
    assert set(verdicts.values()) == {"pass"}
    found = next(finding for finding in record.findings if finding.code == "NUM027")
    assert found.subject.name == node.name
    assert tensor in found.message
    assert record.verdict == "fail"


def test_another_config_other_tensors_and_another_precision_are_refused(
    model: TinyRelease, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "config"
    shutil.copytree(model.folder, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.125}))
    with pytest.raises(InputError, match=r"not that of") as caught:
        opened_bundle(str(file), TinyRelease(other).release, BF16, "Four words are here")
    assert caught.value.code == "E192"
    fewer = tmp_path / "fewer"
    shutil.copytree(model.folder, fewer)
    shard = sorted(fewer.glob("*.safetensors"))[-1]
    tensors = load_file(shard)
    first = next(iter(tensors))
    save_file(tensors | {first: tensors[first].to(torch.float32)}, shard, metadata={"format": "pt"})
    with pytest.raises(InputError) as caught:
        opened_bundle(str(file), TinyRelease(fewer).release, BF16, "Four words are here")
    assert caught.value.code == "E193"
    with pytest.raises(InputError) as caught:
        opened_bundle(str(file), model.release, TargetSpec.parse("eager@cpu/fp32"), "Four words are here")
    assert caught.value.code == "E196"


def read_whole(path: Path) -> None:
    with Bundle(path) as bundle:
        for number in range(len(bundle.head.calls)):
            bundle.unit(number)


def test_a_damaged_file_is_told_in_a_sentence(model: TinyRelease, file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    empty = tmp_path / "empty.zip"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("bundle.json", json.dumps({"format": 99}))
    squeezed = tmp_path / "squeezed.zip"
    with zipfile.ZipFile(squeezed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bundle.json", " " * 2**24 + "{}")
    for number, data in enumerate((whole[:-40], b"nothing", empty.read_bytes(), squeezed.read_bytes())):
        path = tmp_path / f"damaged{number}"
        path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            Bundle(path)
        assert caught.value.code == "E191"
    torn = bytearray(whole)
    torn[len(whole) // 2] ^= 0xFF
    path = tmp_path / "torn"
    path.write_bytes(bytes(torn))
    with pytest.raises(InputError):
        read_whole(path)


def test_an_interrupted_capture_leaves_no_file(model: TinyRelease, tmp_path: Path) -> None:
    path = tmp_path / "reference.day0ref"

    def stops(*_: Any) -> None:
        raise KeyboardInterrupt

    asked = question(model, tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        capture_bundle(Question(**{**vars(asked), "progress": stops}), "bf16", {}, path)
    assert list(tmp_path.glob("reference*")) == []


@pytest.mark.slow
def test_comparing_with_a_bundle_imports_no_transformers(
    model: TinyRelease, file: Path, tmp_path: Path
) -> None:
    """The parent alone: the worker of the eager stack builds its modules with transformers."""
    code = (
        "import sys\n"
        "from day0.flows.cli import main\n"
        f"main(['compare', {str(model.folder)!r}, '--target', 'eager@cpu/bf16', '--reference', "
        f"{str(file)!r}, '--prompt', 'Four words are here', '--store', {str(tmp_path / 'store')!r}, "
        "'--json'])\n"
        "sys.exit('transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert {block["verdict"] for block in answer["blocks"]} == {"pass"}

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.adapters.targets.registry import find_stack, stack_of, stacks

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def write(package: str, line: str) -> None:
        metadata = tmp_path / f"{package}-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(f"[day0.targets]\n{line}\n")
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    return write


def test_shipped_stacks_are_there_and_nothing_of_them_is_imported() -> None:
    assert stacks()["eager"] == "day0.adapters.targets.eager:EagerStack"
    assert {"eager", "inductor", "onnxruntime", "openvino"} <= set(stacks())
    assert "day0.adapters.targets.openvino" not in sys.modules


def test_an_unknown_stack_is_named_with_near_ones() -> None:
    with pytest.raises(InputError, match=r"there are .*eager, .*Did you mean eager") as caught:
        find_stack("eagre")
    assert caught.value.code == "E111"


def test_an_option_that_a_stack_of_ours_does_not_know_is_refused(install: Install) -> None:
    with pytest.raises(
        InputError, match=r"'atn', and eager knows attn, experts, with.*Did you mean attn"
    ) as caught:
        open_target(TargetSpec.parse("eager@cpu/bf16?atn=eager"))
    assert caught.value.code == "E188"
    with pytest.raises(InputError, match=r"'opt', and onnxruntime knows .*provider"):
        stack_of(TargetSpec.parse("onnxruntime@cpu/fp32?provider=CPU&opt=9"))
    install("vendor", "mine = vendor.stack:Stack")
    assert stack_of(TargetSpec.parse("mine@cpu?anything=1")) == "vendor.stack:Stack"


def test_a_name_claimed_twice_names_both_packages(install: Install) -> None:
    install("first", "mine = first.stack:Stack")
    install("second", "mine = second.stack:Stack")
    with pytest.raises(
        InputError, match=r"by first with first\.stack:Stack and by second with second\.stack"
    ) as caught:
        find_stack("mine")
    assert caught.value.code == "E112"


def test_an_entry_point_of_another_form_names_its_package(install: Install) -> None:
    install("crooked", "bad = just.a.module")
    with pytest.raises(InputError, match=r"of crooked is 'just.a.module'"):
        find_stack("bad")


def test_an_entry_point_without_its_module_is_named(install: Install) -> None:
    install("hollow", "hollow = hollow_package.stack:Stack")
    with pytest.raises(
        InputError, match=r"the stack module 'hollow_package.stack' cannot be found"
    ) as caught:
        open_target(TargetSpec.parse("hollow@cpu"))
    assert caught.value.code == "E113"

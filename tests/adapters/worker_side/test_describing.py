from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from day0.adapters.targets.eager import EagerStack
from day0.adapters.targets.inductor import InductorStack
from day0_worker.describing import description, fingerprint, source_digest
from day0_worker.stack import Stack

STACK = """
from day0.adapters.targets.eager import EagerStack
from . import kernels

class VendorStack(EagerStack):
    name = engine = "vendor"

    def engine_version(self):
        return kernels.VERSION
"""


def vendor(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, kernels: str) -> type[Stack]:
    """The stack of a package that is made up here."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernels.py").write_text(kernels)
    (package / "stack.py").write_text(STACK)
    monkeypatch.syspath_prepend(str(folder))
    found: type[Stack] = importlib.import_module(f"{name}.stack").VendorStack
    return found


def exact_of(stack: type[Stack]) -> dict[str, str]:
    exact: dict[str, str] = description(stack("cpu", 1, None, {}))["fingerprint"]["exact"]
    return exact


def test_an_engine_is_told_by_its_full_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = exact_of(vendor(tmp_path, monkeypatch, "vendor_one", "VERSION = '1.0.0'"))
    second = exact_of(vendor(tmp_path, monkeypatch, "vendor_two", "VERSION = '1.0.9'"))
    assert (first["vendor"], second["vendor"]) == ("1.0.0", "1.0.9")


def test_an_engine_and_a_package_of_one_name_are_both_told() -> None:
    exact = fingerprint("safetensors", "0.0.1", "cpu", ("safetensors",))["exact"]
    assert exact["engine"] == "0.0.1"
    assert exact["safetensors"] != "0.0.1"


def test_torch_and_a_package_of_the_engine_are_told_once() -> None:
    of_torch = fingerprint("inductor", torch.__version__, "cpu", ())["exact"]
    assert not {"inductor", "engine"} & set(of_torch)
    version = fingerprint("torch", torch.__version__, "cpu", ("safetensors",))["exact"]["safetensors"]
    assert "engine" not in fingerprint("safetensors", version, "cpu", ("safetensors",))["exact"]


def test_changed_code_of_a_vendor_is_another_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = "VERSION = '1.0.0'"
    first = exact_of(vendor(tmp_path, monkeypatch, "vendor_three", kernels))
    same = exact_of(vendor(tmp_path, monkeypatch, "vendor_four", kernels))
    changed = exact_of(vendor(tmp_path, monkeypatch, "vendor_five", kernels + "  # faster"))
    assert first == same
    assert {key for key in first if first[key] != changed[key]} == {"stack source"}


def test_code_of_day0_itself_is_no_part() -> None:
    assert source_digest(EagerStack) == source_digest(InductorStack) == ""
    assert "stack source" not in exact_of(EagerStack)

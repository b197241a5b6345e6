from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.models import skeleton_store
from day0.adapters.models.skeleton_store import load_or_build_skeleton
from support.layouts import make_release
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
PROBE = """
import sys
from day0.adapters.base.run_store import RunStore
from day0.adapters.checkpoints.release import open_release
from day0.adapters.models.skeleton_store import load_or_build_skeleton
skeleton = load_or_build_skeleton(open_release(sys.argv[1]), RunStore(sys.argv[2]))
print(skeleton.architecture, sorted({"torch", "transformers"} & set(sys.modules)))
"""


def test_a_stored_skeleton_needs_neither_torch_nor_transformers(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    built = load_or_build_skeleton(model.release, RunStore(tmp_path))
    assert load_or_build_skeleton(model.release, RunStore(tmp_path)) == built
    answer = subprocess.run(
        [sys.executable, "-c", PROBE, str(model.folder), str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert answer.stdout.split() == ["LlamaForCausalLM", "[]"]


def test_a_damaged_file_is_built_again(tiny: Tiny, tmp_path: Path) -> None:
    store, release = RunStore(tmp_path), make_release(tiny("llama").skeleton.config, {})
    built = load_or_build_skeleton(release, store)
    (name,) = store.list("skeletons")
    store.write(f"skeletons/{name}", b'{"architecture": ')
    assert load_or_build_skeleton(release, store) == built


def test_config_layout_and_version_are_in_the_key(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, config = RunStore(tmp_path), dict(tiny("llama").skeleton.config)
    load_or_build_skeleton(make_release(config, {}), store)
    load_or_build_skeleton(make_release(config | {"num_hidden_layers": 2}, {}), store)
    load_or_build_skeleton(make_release(config, {"model.norm.weight": ("bf16", [32])}), store)
    monkeypatch.setattr(skeleton_store, "SKELETON_VERSION", -1)
    load_or_build_skeleton(make_release(config, {}), store)
    assert len(store.list("skeletons")) == 4

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from day0.flows import cli

MakeFolder = Callable[[str], Path]


def unknown_type(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    changes = {"model_type": "nobody_knows", "architectures": ["NobodyForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config | changes))


def only_repository_code(folder: Path) -> None:
    unknown_type(folder)
    config = json.loads((folder / "config.json").read_text())
    code = {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}
    (folder / "config.json").write_text(json.dumps(config | code))


def cut_shard(folder: Path) -> None:
    last = max(folder.glob("*.safetensors"))
    last.write_bytes(last.read_bytes()[:-1000])


def pickle_only(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "inventory", "code"),
    [
        (unknown_type, 0, "E401"),
        (only_repository_code, 0, "E402"),
        (cut_shard, 1, "INV001"),
        (pickle_only, 1, "INV003"),
    ],
)
def test_a_broken_release_is_a_record_of_what_could_be_found_out(
    damage: Callable[[Path], None],
    inventory: int,
    code: str,
    tiny_copy: MakeFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny_copy("llama")
    damage(model)
    assert cli.main(["inventory", str(model), "--json"]) == inventory
    counted = json.loads(capfd.readouterr().out)
    words = ["compare", str(model), "--target", "eager@cpu/fp32", "--probe-budget", "1", "--json"]
    assert cli.main(words) in (1, 3)
    compared = json.loads(capfd.readouterr().out)
    assert compared["findings"]
    assert code in json.dumps([counted["findings"], compared["findings"]])

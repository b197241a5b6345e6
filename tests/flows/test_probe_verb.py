"""`day0 probe` from the command line: what it prints, keeps, and ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.registries.files import stored_registry
from day0.flows.cli import main

_LIST = """\
all_version: [v2.6, v2.7]
official:
  - func: mm(Tensor self, Tensor mat2) -> Tensor
    op_api: all_version
  - func: gone(Tensor self) -> Tensor
    op_api: [v2.6, v2.6]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A model of one layer as a bare config."""
    values = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "dtype": "float32",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return path


def _probe(store: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["probe", *words, "--store", str(store)])
    return status, capfd.readouterr().out


@pytest.mark.slow
def test_a_probe_answers_in_json_with_a_verdict_and_goes_on_where_it_was(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = (str(config), "--target", "eager@cpu/fp32", "--json")
    status, out = _probe(tmp_path / "store", capfd, *words)
    found = json.loads(out)
    assert (status, found["verdict"], found["left"]) == (0, "pass", 0)
    assert set(found["statuses"]) == {"native"}
    rows = stored_registry(RunStore(str(tmp_path / "store")), "eager@cpu").rows
    assert all(row.date and row.schema_hash and row.tried for row in rows.values())
    again = json.loads(_probe(tmp_path / "store", capfd, *words)[1])
    assert (again["probed"], again["verdict"]) == (0, "pass")
    assert again["ops"] == found["ops"]


def test_a_list_is_taken_over_as_declared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "op_plugin_functions.yaml"
    path.write_text(_LIST)
    words = ("--target", "eager@npu", "--declare", str(path), "--json")
    status, out = _probe(tmp_path / "store", capfd, *words)
    found = json.loads(out)
    # Nothing is judged, so there is no verdict beside the exit status.
    assert (status, "verdict" in found, found["unread"]) == (0, False, [])
    assert found["declared"] == {"missing": 1, "native": 1}
    registry = stored_registry(RunStore(str(tmp_path / "store")), "eager@npu")
    assert (len(registry.rows), len(registry.declared)) == (0, 2)
    older = json.loads(_probe(tmp_path / "store", capfd, *words, "--declared-for", "v2.6")[1])
    assert older["declared"] == {"native": 2}


def test_what_cannot_be_read_of_a_list_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "op_plugin_functions.yaml"
    path.write_text(_LIST + "  - func: odd(Tensor self) -> Tensor\n    op_api: {a: b}\n  - func: nonsense\n")
    words = ("--target", "eager@npu", "--declare", str(path))
    said = "2 entries of the list cannot be read, such as 'func: odd(Tensor self) -> Tensor, op_api: {a: b}'"
    status, out = _probe(tmp_path / "store", capfd, *words)
    assert (status, said in out) == (0, True)
    found = json.loads(_probe(tmp_path / "store", capfd, *words, "--json")[1])
    assert (found["declared"], found["unread"]) == ({"missing": 1, "native": 1}, [said])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--target", "eager@npu", "--declare", "nothing.yaml"), "E173"),
        (("model", "--target", "eager@npu", "--declare", "nothing.yaml"), "E174"),
        (("--target", "nostack@npu", "--declare", "nothing.yaml"), "E111"),
    ],
)
def test_what_cannot_be_taken_over(
    words: tuple[str, ...], code: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status = main(["probe", *words, "--store", str(tmp_path)])
    said = capfd.readouterr()
    assert (status, said.out) == (2, "")
    assert code in said.err

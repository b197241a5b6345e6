from __future__ import annotations

from pathlib import Path

import torch

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.skeleton import Node, WeightRecipe
from day0.adapters.base.target import Call
from day0.tasks.numerics.walk.units import Unit, chain, load_unit, node_identity, save_unit


def test_a_unit_comes_back_bit_for_bit(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    wide, narrow = torch.randn(2, 3), torch.randn(4).bfloat16()
    one = Call({"$tuple": [{"$tensor": "t0"}, None, 1.5]}, {"t0": wide})
    other = Call({"$tensor": "t0"}, {"t0": narrow})
    save_unit(store, "ab12", Unit({"one": one, "other": other}, {"why": "not", "count": 3}))
    found = load_unit(store, "ab12")
    assert found is not None
    assert found.values["one"].tree == one.tree
    assert torch.equal(found.values["one"].tensors["t0"], wide)
    assert torch.equal(found.values["other"].tensors["t0"], narrow)
    assert found.facts == {"why": "not", "count": 3}


def test_a_damaged_unit_is_none_at_all(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    save_unit(store, "ab12", Unit({}, {}))
    path = Path(store.path("units/ab/ab12"))
    whole = path.read_bytes()
    for damaged in (whole[:-3], whole[:20], b"", b"nonsense" * 9):
        path.write_bytes(damaged)
        assert load_unit(store, "ab12") is None
        path.write_bytes(whole)
    assert load_unit(store, "ab13") is None


class Identities:
    def __init__(self, identity: str) -> None:
        self._identity = identity

    def identity(self, name: str) -> str:
        return f"{name}={self._identity}"


def test_a_changed_tensor_changes_the_keys_from_its_node_on() -> None:
    recipe = WeightRecipe(expression={"tensor": "w"}, tensors=("w",), shape=(1,))
    node = Node(name="n", role="layer", kind="k", weights={"weight": recipe})
    before, after = (node_identity(node, Identities(text)) for text in ("old", "new"))  # type: ignore[arg-type]  # only `identity` is asked for
    assert before != after
    assert chain("start", before) != chain("start", after)
    assert chain(chain("start", before), "next") != chain(chain("start", after), "next")

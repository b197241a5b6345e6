"""How far nodes moved, read without torch: the same as the stage itself works out with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Call
from day0.reports.signatures import Kept, Moves, moved, moves
from day0.tasks.numerics.measures import signatures as written
from day0.tasks.numerics.record import NumericsRecord
from support.sample_numerics import sample_numerics
from support.sample_records import ORT


def output(*, scale: float = 1.0, tokens: int = 6, seed: int = 3) -> torch.Tensor:
    return torch.randn(tokens, 40, generator=torch.Generator().manual_seed(seed)) * scale


def call(tensor: torch.Tensor) -> Call:
    return Call({"$tensor": "t0"}, {"t0": tensor})


def record(store: RunStore, outputs: dict[str, torch.Tensor], tokens: Sequence[int] = ()) -> NumericsRecord:
    """A record whose run left the signatures of these outputs, of those tokens."""
    kept = {name: written.signature_of(call(value)) for name, value in outputs.items()}
    known = {key: value for key, value in kept.items() if value is not None}
    name = written.save_signatures(store, known, tokens)
    return sample_numerics(ORT, layers=2).model_copy(update={"files": {"signatures": name}})


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(str(tmp_path))


def test_distances_are_those_of_the_stage(store: RunStore) -> None:
    before = {"a": output(), "b/c": output(seed=4), "gone": output()}
    after = {"a": output() * 1.01, "b/c": output(seed=4), "shape": output(tokens=5)}
    found = moves(store, record(store, before), record(store, after)).by_node
    assert set(found) == {"a", "b/c"}
    first, second = (written.signature_of(call(side["a"])) for side in (before, after))
    assert first is not None
    assert second is not None
    assert found["a"] == pytest.approx(written.moved(first, second), rel=1e-6)
    assert found["b/c"] == 0.0
    # An output times 1.01 moved by 0.01 of its norm, within four standard deviations of the estimate.
    assert found["a"] == pytest.approx(0.01, rel=4 * math.sqrt(2 / 64) / 2)


def test_another_shape_is_infinitely_far(store: RunStore) -> None:
    found = moves(store, record(store, {"a": output()}), record(store, {"a": output(tokens=5)}))
    assert found == Moves({"a": math.inf})


def test_of_runs_over_other_tokens_only_those_before_the_first_other_one_count(store: RunStore) -> None:
    """A token changes every row from its own on; one node changed by itself, in rows before that too."""
    before, after = [5, 6, 7, 8, 9, 10], [5, 6, 7, 4, 9, 10]
    seen, itself = output(), output(seed=4)
    passed_on = torch.cat([seen[:3], output(seed=5)[3:]])
    changed = torch.cat([itself[:1], itself[1:] * 2])
    found = moves(
        store,
        record(store, {"a": seen, "b": itself}, before),
        record(store, {"a": passed_on, "b": changed}, after),
    )
    assert found.alike == 3
    assert found.by_node["a"] == 0.0
    norms = itself.double().norm(dim=1)[:3]
    assert found.by_node["b"] == pytest.approx(float(norms[1:].norm() / norms.norm()), rel=1e-5)
    same = moves(store, record(store, {"a": seen}, before), record(store, {"a": seen}, before))
    assert same == Moves({"a": 0.0})
    unknown = moves(store, record(store, {"a": seen}), record(store, {"a": passed_on}, after))
    assert unknown.alike is None
    assert unknown.by_node["a"] > 0.1


@pytest.mark.parametrize(
    ("before", "after", "distance"),
    [
        (([1.0], [0.0]), ([1.0], [0.0]), 0.0),
        (([1.0], [0.0]), ([2.0], [0.0]), math.inf),
        (([1.0, 2.0], [2.0]), ([1.0], [2.0]), math.inf),
        (([0.0, 0.0], [3.0, 4.0]), ([3.0, 1.0], [3.0, 4.0]), math.sqrt(5) / 5),
    ],
)
def test_by_hand(
    before: tuple[Sequence[float], Sequence[float]],
    after: tuple[Sequence[float], Sequence[float]],
    distance: float,
) -> None:
    assert moved(Kept(*before), Kept(*after)) == pytest.approx(distance)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff" * 40,
        (5).to_bytes(8, "little") + b"[1,2]",
        (16).to_bytes(8, "little") + b'{"a/projection":3}'[:16],
        (2).to_bytes(8, "little") + b"{}",
        (66).to_bytes(8, "little") + b'{"a/projection":{"dtype":"F32","shape":[9],"data_offsets":[0,99]}} ',
    ],
)
def test_a_damaged_file_says_nothing(store: RunStore, damage: bytes) -> None:
    good = record(store, {"a": output()})
    store.write("signatures/broken", damage)
    broken = good.model_copy(update={"files": {"signatures": "signatures/broken"}})
    assert moves(store, good, broken) == Moves()
    gone = good.model_copy(update={"files": {"signatures": "signatures/none"}})
    assert moves(store, good, gone) == Moves()
    assert moves(store, good, good.model_copy(update={"files": {}})) == Moves()

"""Nodes compared side by side give the very facts that the walk alone gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.targets.open import open_target
from day0.tasks.job import NumericsOptions
from day0.tasks.numerics.measure import measure_numerics
from day0.tasks.numerics.question import Question
from day0.tasks.numerics.record import NumericsRecord
from day0.tasks.numerics.spread.span import Span
from day0.tasks.spreading import Spread, parse_spread, pieces
from support.tiny_releases import TinyRelease

Tiny = Callable[[str], TinyRelease]
TARGET = "eager@cpu/bf16"


def test_ways_are_read_and_others_refused() -> None:
    assert parse_spread("") is None
    assert parse_spread("threads:3") == Spread("threads", 3)
    assert parse_spread("processes:2") == Spread("processes", 2)
    assert parse_spread("dask:tcp://10.0.0.1:8786") == Spread("dask", 2, "tcp://10.0.0.1:8786")
    for text in ("threads", "threads:0", "fork:2", "dask", "processes:-1"):
        with pytest.raises(InputError) as caught:
            parse_spread(text)
        assert caught.value.code == "E189"


def test_pieces_are_even_and_in_order() -> None:
    assert pieces(list(range(7)), 3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert pieces([], 3) == []


def measured(tiny: TinyRelease, store: Path, how: Spread | None) -> NumericsRecord:
    span = Span(
        model=str(tiny.folder),
        revision="",
        store=str(store),
        target=TARGET,
        timeout=120.0,
        memory=8 * 2**30,
        command=(),
    )
    asked = Question(
        tiny.release,
        tiny.skeleton,
        RunStore(store),
        "Four words are here",
        asked=NumericsOptions(prompts="decode"),
    )
    with open_target(TargetSpec.parse(TARGET)) as target:
        question = replace(asked, spread=how, span=span if how else None)
        return measure_numerics(question, target, target.describe())


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as made:
        yield made.scheduler_address


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["threads", "processes", "dask"])
def test_spread_nodes_give_the_facts_of_the_walk(
    tiny: Tiny, tmp_path: Path, way: str, request: pytest.FixtureRequest
) -> None:
    model = tiny("deepseek_v3" if way == "dask" else "llama")
    address = request.getfixturevalue("cluster") if way == "dask" else ""
    alone = measured(model, tmp_path / "alone", None)
    spread = measured(model, tmp_path / "spread", Spread(way, 2, address))
    assert spread.facts_digest == alone.facts_digest
    assert alone.verdict == "pass"

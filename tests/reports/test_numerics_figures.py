"""Figures of the numerics section: what stands where in them, and the sentences that say what to see."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest

from day0.reports.page.depth_figure import error_figure
from day0.reports.page.depth_reading import reading
from day0.reports.page.routing_figure import routing_figure
from day0.tasks.numerics.record import Block as Node
from day0.tasks.numerics.record_parts import Routing
from day0.tasks.thresholds import NUMERICS_RATIO
from support.sample_numerics import metrics, sample_blocks, sample_tower


def node(name: str, error: float, noise: float, verdict: str = "pass", **changes: Any) -> Node:
    local = metrics(error, error / noise, 1.0)
    return Node(
        name=name, role="layer", local=local, propagated=local, growth=1.0, verdict=verdict, **changes
    )


def drawn(blocks: list[Node], first: str = "") -> str:
    figure = error_figure(blocks, "f", lambda name: f"row-{name}", first)
    assert figure is not None
    return str(figure.svg)


def heights(svg: str, css: str) -> list[float]:
    """Heights of the points of the paths of a class."""
    paths = re.findall(rf'<path class="{css}" d="([^"]+)"', svg)
    return [float(y) for path in paths for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def grid(svg: str) -> dict[float, float]:
    """Value of each grid line -> its height."""
    lines = re.findall(r'<line class="grid" x1="[\d.]+" y1="([\d.]+)"', svg)
    ticks = re.findall(r'<text class="tick" [^>]*text-anchor="end">([^<]+)<', svg)
    return {float(tick): float(y) for tick, y in zip(ticks, lines, strict=False)}


def test_a_node_at_its_tolerance_stands_on_the_dashed_line() -> None:
    """Values from 1e-3 to 1e-2 span one decade, whatever the tolerance is between 1 and 10."""
    tolerance = NUMERICS_RATIO
    svg = drawn([node(f"model.layers.{i}", (tolerance if i == 1 else 1) * 1e-3, 1e-3) for i in range(3)])
    line, limit = heights(svg, "line local"), heights(svg, "limit")
    assert line[1] == pytest.approx(min(limit), abs=0.11)
    lines = grid(svg)
    assert sorted(lines) == [1e-3, 1e-2]
    share = math.log10(tolerance)
    assert line[1] == pytest.approx(lines[1e-3] - share * (lines[1e-3] - lines[1e-2]), abs=0.2)
    assert line[0] == pytest.approx(lines[1e-3], abs=0.11)


def test_faults_are_crossed_and_the_first_is_named_in_full() -> None:
    blocks = [node(f"model.layers.{i}", 1e-3, 1e-3) for i in range(40)]
    blocks[7] = node("model.layers.7", 9e-3, 1e-3, "fail")
    blocks[8] = node("model.layers.8", 9e-3, 1e-3, "fail")
    blocks[20] = node("model.layers.20", 1e-3, 1e-3, "inherited")
    svg = drawn(blocks, "model.layers.8")
    assert svg.count('class="mark fail"') == 2
    assert svg.count('class="mark inherited"') == 1
    assert re.findall(r'<text class="name"[^>]*>([^<]+)<', svg)[0] == "model.layers.8"
    figure = error_figure(blocks, "f", lambda _: "", "model.layers.8")
    assert figure is not None
    assert {key.css for key in figure.legend} >= {"k-fail", "k-inherited"}
    assert figure.reading.startswith("model.layers.8 is wrong by itself, 9.00 times the rounding")
    assert "So is model.layers.7." in figure.reading
    assert "1 node, marked by diamonds, is off on the dotted line only" in figure.reading


def test_exact_nodes_stand_on_a_line_of_their_own() -> None:
    svg = drawn([node("a.0", 0.0, 1e-3), node("a.1", 1e-3, 1e-3), node("a.2", 0.0, 1e-3)])
    line = heights(svg, "line local")
    assert line[0] == line[2] > max(grid(svg).values())
    assert ">0</text>" in svg


def test_gaps_are_gaps() -> None:
    blocks = [node(f"a.{i}", 1e-3, 1e-3) for i in range(5)]
    blocks[2] = Node(
        name="a.2", role="layer", local=None, propagated=None, growth="NaN", verdict="unverified"
    )
    svg = drawn(blocks)
    path = re.search(r'<path class="line local" d="([^"]+)"', svg)
    assert path is not None
    assert path[1].count("M") == 2
    assert svg.count('class="tick gap"') == 1
    assert "Not compared, marked with a question mark: a.2." in reading(blocks)


def test_a_fault_without_a_number_is_crossed_at_the_top() -> None:
    blocks = [node(f"a.{i}", 1e-3, 1e-3) for i in range(4)]
    broken = metrics(1e-3, 1.0, 1.0, rel_l2="NaN", ratio="NaN", nonfinite=3)
    blocks[1] = blocks[1].model_copy(
        update={"local": broken, "verdict": "fail", "reason": "nonfinite 3 is beyond 0"}
    )
    svg = drawn(blocks, "a.1")
    assert min(heights(svg, "mark fail")) < min(heights(svg, "line local"))
    assert "has no distance to draw: nonfinite 3 is beyond 0." in reading(blocks, "a.1")


def test_a_target_that_is_exact_throughout_has_no_figure_and_says_so() -> None:
    blocks = [node(f"a.{i}", 0.0, 1e-3) for i in range(4)]
    assert error_figure(blocks, "f", lambda _: "") is None
    told = "All 4 nodes are equal to the reference to the last bit."
    assert reading(blocks).startswith(told)


@pytest.mark.parametrize("layers", [1, 5, 61, 200, 1000])
def test_labels_of_nodes_never_overlap(layers: int) -> None:
    blocks = sample_blocks(layers, bad=layers // 2, scale=1e-3, seed=1)
    svg = drawn(blocks, f"model.layers.{layers // 2}")
    ticks = re.findall(r'<text class="tick" x="([\d.]+)" y="[\d.]+" text-anchor="middle">([^<]+)<', svg)
    spans = sorted((float(x) - 3 * len(words), float(x) + 3 * len(words)) for x, words in ticks)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    assert len(ticks) >= min(layers, 10)


def test_two_stacks_of_numbered_nodes_are_told_apart() -> None:
    names = [f"model.visual.blocks.{i}" for i in range(12)] + [f"model.layers.{i}" for i in range(30)]
    svg = drawn([node(name, 1e-3, 1e-3) for name in names])
    titles = re.findall(r'<text class="axis-title"[^>]*>([^<]+)<', svg)
    assert titles == ["model.visual.blocks", "model.layers"]


def test_routers_stack_near_ties_and_unexplained_flips() -> None:
    routers = [
        Routing(name="model.layers.3", tokens=100, flips=30, near_tie=10, unexplained=20),
        Routing(name="model.layers.4", tokens=100, flips=10, near_tie=10),
        Routing(name="model.layers.5", reason="unknown"),
    ]
    figure = routing_figure(routers, "f")
    assert figure is not None
    svg = str(figure.svg)
    bars = re.findall(
        r'<rect class="part (\w+)" x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', svg
    )
    (_, near_top, near), (css, top, strange), (_, _, other) = bars
    assert css == "unexplained"
    assert float(strange) == pytest.approx(2 * float(near), abs=0.2)
    assert float(near) == pytest.approx(float(other), abs=0.11)
    assert float(top) + float(strange) == pytest.approx(float(near_top), abs=0.11)
    assert svg.count('class="mark fail"') == 1
    assert svg.count('class="tick gap"') == 1
    assert routing_figure([Routing(name="a", reason="unknown")], "f") is None


def test_nodes_of_an_image_stand_apart_from_those_of_the_text() -> None:
    blocks = [*sample_tower(2), *sample_blocks(3, bad=None, scale=1e-3, seed=1)]
    svg = drawn(blocks)
    words = re.findall(r'<text class="axis-title"[^>]*>([^<]+)<', svg)
    assert {"image", "text", "model.visual.blocks", "model.layers"} <= set(words)
    # The pen is lifted between the streams: two moves in each line, and two areas of each band.
    assert [path.count("M") for path in re.findall(r'<path class="line local" d="([^"]+)"', svg)] == [1, 1]
    assert len(re.findall(r'<path class="noise"', svg)) == 2
    alone = drawn(sample_blocks(3, bad=None, scale=1e-3, seed=1))
    assert "image" not in re.findall(r'<text class="axis-title"[^>]*>([^<]+)<', alone)
    told = reading(blocks)
    assert told.count("On its own stream the target ends") == 2
    assert "at model.visual.merger" in told
    assert "at lm_head" in told

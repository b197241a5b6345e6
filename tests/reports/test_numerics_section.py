"""The numerics section: what stands in it for each optional part, its figures, and text from outside."""

from __future__ import annotations

import itertools
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from day0.reports.assemble import assemble
from day0.reports.model import Report, Stages
from day0.reports.page.build import build_page, unsourced_blocks
from day0.reports.page.depth_figure import error_figure
from day0.reports.page.depth_reading import reading
from day0.reports.page.parts import Block, Group, Table
from day0.reports.page.routing_figure import routing_figure
from day0.reports.page.text import element_id
from day0.reports.render import render
from day0.reports.strict_json import plain
from day0.tasks.numerics.record import Block as Node
from day0.tasks.numerics.record import FirstFault, NumericsFacts, NumericsRecord
from day0.tasks.numerics.record_parts import Manifest, ReferenceCheck, Routing, TaskMetric, Training
from day0.tasks.thresholds import NUMERICS_RATIO
from support.sample_numerics import (
    metrics,
    optional_parts,
    sample_blocks,
    sample_numerics,
    sample_routing,
    sample_self_test,
    sample_training,
)
from support.sample_records import EAGER, MODEL, ORT, sample_inventory


class Text(HTMLParser):
    """The text of a page, and all tags."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.parts: list[str] = []
        self.ids: list[str] = []
        self.links: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.ids += [value for value in (named.get("id"),) if value]
        self.links |= {value[1:] for value in (named.get("href"),) if value and value.startswith("#")}

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    @property
    def whole(self) -> str:
        return " ".join(" ".join(self.parts).split())


def report_of(record: NumericsRecord, target: str = ORT) -> Report:
    return assemble("r", MODEL, sample_inventory(4), {target: Stages(numerics=record)})


def block_of(record: NumericsRecord, target: str = ORT) -> Block:
    page = build_page(report_of(record, target))
    return next(section for section in page.sections if section.id == "stage-numerics").blocks[0]


def everything(**facts: Any) -> NumericsRecord:
    parts = {**optional_parts(), "routing": sample_routing(6, unexplained=4, unknown=True)}
    return sample_numerics(ORT, layers=6, bad=3, **{**parts, **facts})


def group(block: Block, name: str) -> Group:
    return next(group for group in block.groups if group.id.endswith(f"--{name}"))


def table_text(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in table.rows]


# --- as a whole ---------------------------------------------------------------------------------------------


def test_all_parts_stand_on_the_page_with_sources_and_working_links() -> None:
    page = build_page(report_of(everything()))
    assert unsourced_blocks(page) == []
    names = [group.id.rsplit("--", 1)[1] for group in block_of(everything()).groups]
    assert names == ["routing", "output", "range", "self-test", "precision", "training"]
    text = Text(render(report_of(everything())))
    assert text.links - set(text.ids) == set()
    assert len(text.ids) == len(set(text.ids))
    assert text.tags.count("script") == 0


def test_what_was_not_asked_for_leaves_no_heading() -> None:
    names = [group.id.rsplit("--", 1)[1] for group in block_of(sample_numerics(ORT, layers=3)).groups]
    assert names == ["output", "range"]
    bare = sample_numerics(ORT, layers=0, blocks=(), logits=None, says=None, manifest=Manifest())
    assert block_of(bare).groups == []
    assert block_of(bare).notices == []
    assert "No node was compared" in Text(render(report_of(bare))).whole


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", 0.0, -1.0, 1e-320, 1e300])
def test_any_number_can_stand_anywhere(number: Any) -> None:
    """Every number of every part replaced: a page all the same, and the figures hold nothing but numbers."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return number if isinstance(value, float) else value

    facts = NumericsFacts.model_validate(replaced(plain(everything().facts)))
    page = render(report_of(everything().model_copy(update={"facts": facts})))
    for shape in re.findall(r"<(?:path|line|rect|circle|text) [^>]*>", page):
        assert not re.search(r'="[^"]*(?:nan|inf)', shape, re.I)


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202e\x00\ud800", "²", "x" * 50_000],
)
def test_hostile_text_stays_text(name: str) -> None:
    kept = {"verdict", "state", "applies", "dtype"}

    def poison(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if key in ("load", "policy", "not_applicable"):
                return dict.fromkeys([name] if value else [], next(iter(value.values()), None))
            return {inner: poison(item, inner) for inner, item in value.items()}
        if isinstance(value, list):
            return [poison(item, key) for item in value]
        if isinstance(value, str) and key not in kept and value not in ("NaN", "Infinity", "-Infinity"):
            return name
        return value

    facts = NumericsFacts.model_validate(poison(plain(everything().facts)))
    page = render(report_of(everything().model_copy(update={"facts": facts})))
    assert set(Text(page).tags) & {"script", "img"} == set()
    assert not re.search("[\x00\u202e\ud800]", page)
    assert len(page) < 600_000


# --- the reference, before anything else --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "look", "words"),
    [
        (
            {"state": "pass", "method": "from_pretrained", "value": 1.4e-6, "limit": 1e-4},
            "pass",
            ["1.40e-6", "1.00e-4"],
        ),
        (
            {"state": "fail", "method": "likelihood", "value": 16.04, "limit": 6.9},
            "fail",
            ["16.0", "Nothing below"],
        ),
        ({}, "unverified", ["not verified", "Nothing below"]),
        ({"state": "odd"}, "unverified", ["not verified"]),
        (
            {"state": "pass", "method": "from_pretrained,samples"},
            "pass",
            ["stock from_pretrained and published"],
        ),
    ],
)
def test_the_reference_check_stands_first(check: dict[str, Any], look: str, words: list[str]) -> None:
    record = sample_numerics(ORT, layers=3, reference_check=ReferenceCheck(**check, detail="By hand."))
    notice = block_of(record).notices[0]
    assert notice.look == look
    page = Text(render(report_of(record))).whole
    for word in [*words, "By hand."]:
        assert word in notice.text
        assert page.index(notice.text[:30]) < page.index("Error by depth")


def test_calls_that_were_not_captured_are_told() -> None:
    record = sample_numerics(ORT, layers=3, manifest=Manifest(expected=9, seen=7, missing=["lm_head/long"]))
    told = block_of(record).notices[1]
    assert told.look == "unverified"
    assert "2 of 9 calls" in told.text
    assert "lm_head/long" in told.text


# --- the first fault ----------------------------------------------------------------------------------------


def test_the_first_fault_leads_from_the_node_to_the_operator() -> None:
    trail = block_of(everything()).trail
    assert trail is not None
    assert [(step.word, step.name) for step in trail.steps] == [
        ("node", "model.layers.3"),
        ("fragment", "model.layers.3.mlp.act_fn"),
        ("operator", "aten.silu.default"),
    ]
    assert trail.steps[0].href == f"numerics--{element_id(ORT)}--model.layers.3"
    assert [stat.cell.text for stat in trail.found] == ["61.4", "12.0"]


def test_a_long_script_is_cut_and_says_how_to_get_all_of_it() -> None:
    script = "\n".join(f"x{i} = {'1' * 90}" for i in range(400)) + "\n# " + "<b>" * 4000
    fault = FirstFault(block="model.layers.3", metric="ratio", value=9.0, tolerance=5.0, repro=script)
    trail = block_of(everything(first_fault=fault)).trail
    assert trail is not None
    assert trail.script is not None
    assert len(trail.script.text) <= 8_000
    lines = trail.script.text.splitlines()
    assert lines == script.splitlines()[: len(lines)]
    assert trail.script.cut == f"The first {len(lines)} of 401 lines; long ones cut."
    path = ".targets[0].stages.numerics.facts.first_fault.repro"
    assert path in trail.script.command
    place: Any = plain(report_of(everything(first_fault=fault)))
    for key in re.findall(r"[a-z_]+|\d+", path):
        place = place[int(key)] if key.isdigit() else place[key]
    assert place == script


def test_a_short_script_is_whole_and_escaped() -> None:
    fault = FirstFault(
        block="model.layers.3", metric="ratio", value=9.0, tolerance=5.0, repro="if a < b:\n  print()\n"
    )
    page = render(report_of(everything(first_fault=fault)))
    assert "if a &lt; b:\n  print()" in page
    trail = block_of(everything(first_fault=fault)).trail
    assert trail is not None
    assert trail.script is not None
    assert trail.script.cut == ""
    assert "did not go below the node" in trail.detail


def test_the_first_fault_has_a_row_however_many_nodes_are_worse() -> None:
    blocks = [
        Node(
            name=f"model.layers.{i}",
            role="layer",
            local=metrics(1e-2, 6.0 + i, 1.0),
            propagated=None,
            growth="NaN",
            verdict="fail",
        )
        for i in range(600)
    ]
    fault = FirstFault(block="model.layers.0", metric="ratio", value=6.0, tolerance=5.0)
    page = render(report_of(sample_numerics(ORT, blocks=blocks, first_fault=fault)))
    assert f'id="numerics--{element_id(ORT)}--model.layers.0"' in page
    text = Text(page)
    assert text.links - set(text.ids) == set()


# --- figures ------------------------------------------------------------------------------------------------


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
    assert told in block_of(sample_numerics(ORT, blocks=blocks)).lead


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


# --- groups -------------------------------------------------------------------------------------------------


def test_routing_is_judged_by_unexplained_flips() -> None:
    def look(**facts: Any) -> tuple[str, str]:
        found = group(block_of(everything(**facts)), "routing")
        return found.look, found.lead

    assert look(routing=sample_routing(4))[0] == "pass"
    bad, told = look(routing=sample_routing(4, unexplained=7))
    assert bad == "fail"
    assert told.startswith(
        "7 of 31 flips are not explained by rounding, at 1 router, first at model.layers.2"
    )
    assert look(routing=sample_routing(4, unknown=True))[0] == "unverified"


def test_prompts_stand_one_by_one_with_decode_beside() -> None:
    rows = table_text(group(block_of(everything()), "output").tables[0])
    assert [row[:3] for row in rows] == [
        ["main prompt", "prefill", "64"],
        ["texts", "prefill", "128"],
        ["long", "prefill", "2,048"],
        ["padded", "prefill", "90"],
        ["shifted", "prefill", "32"],
        ["window", "prefill", "\N{EN DASH}"],
        ["decoding", "decode", "8"],
    ]
    output = group(block_of(everything()), "output")
    assert output.look == "fail"
    assert "the model has no window" in output.tables[0].rows[5].cells[0].below
    assert output.tables[0].rows[2].cells[-1].text == "model.layers.3"


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (-0.09, -0.02, "worse, beyond chance"),
        (0.01, 0.05, "better, beyond chance"),
        (-0.02, 0.01, "chance explains"),
        ("NaN", "NaN", "no interval"),
    ],
)
def test_a_task_is_told_with_its_interval(low: Any, high: Any, told: str) -> None:
    task = TaskMetric(
        name="choices", items=240, reference=0.71, target=0.66, difference=-0.05, low=low, high=high
    )
    output = group(block_of(everything(task=task)), "output")
    assert told in output.lead
    assert output.stats[-1].cell.text == "-5.0 points"


def test_a_task_that_does_not_apply_says_why() -> None:
    output = group(block_of(everything(task=TaskMetric(reason="random weights"))), "output")
    assert "The task was not done: random weights." in output.lead
    assert output.stats == ()


def test_nodes_near_overflow_are_listed_the_nearest_first() -> None:
    blocks = sample_blocks(8, bad=None, scale=1e-3, seed=1)
    shares = [0.05, 0.2, 1.5, 0.11, "NaN", 0.4, 0.3, 0.12, 0.13, 0.0, 0.0]
    blocks = [b.model_copy(update={"headroom": share}) for b, share in zip(blocks, shares, strict=True)]
    found = group(block_of(sample_numerics(ORT, blocks=blocks)), "range")
    assert [row[0] for row in table_text(found.tables[0])] == [blocks[i].name for i in (2, 5, 6, 1, 8)]
    assert found.look == "fail"
    assert f"{blocks[2].name} overflows" in found.lead


def test_nodes_that_differ_from_run_to_run_are_counted() -> None:
    blocks = sample_blocks(3, bad=None, scale=1e-3, seed=1)
    blocks[1] = blocks[1].model_copy(update={"bit_stable": False, "band": 3e-4})
    found = group(block_of(sample_numerics(ORT, blocks=blocks)), "range")
    assert "equal to the last bit at 5 of 6 nodes only" in found.lead
    assert "3.00e-4 at most, at model.layers.0" in found.lead


def test_the_detection_matrix_sets_misses_first_and_counts() -> None:
    found = group(block_of(everything(self_test=sample_self_test(missed=True))), "self-test")
    assert found.look == "fail"
    assert found.lead.startswith("4 of 5 bugs that apply were found. Missed: wrong_head_grouping.")
    rows = {row[0]: row[1] for row in table_text(found.tables[0])}
    assert next(iter(rows.items())) == ("wrong_head_grouping", "missed")
    assert rows["stale_kv_slot"] == "found, wrong node"
    assert rows["clamped_activations"] == "hidden by rounding"
    assert rows["dropped_bias"] == "not in this model"
    assert rows["norm_eps"] == "found"
    statuses = {row.cells[0].text: row.status for row in found.tables[0].rows}
    assert statuses["wrong_head_grouping"] == "fail"
    assert statuses["clamped_activations"] == "unverified"


def test_the_policy_is_told_with_its_cost() -> None:
    found = group(block_of(everything()), "precision")
    assert found.lead == "2 of 3 roles tolerate a lower precision; router must stay as it is."
    rows = table_text(found.tables[0])
    assert rows[0] == ["attention", "int8", "may be lowered", "0.00200", "2.20", "7.08 MB"]
    assert rows[2][:3] == ["router", "bf16", "stays"]
    assert len(found.tables[1].rows) == 4


def test_training_shows_three_losses_and_the_worst_gradient() -> None:
    found = group(block_of(everything(training=sample_training(wrong="model.layers.0"))), "training")
    assert found.look == "fail"
    assert found.lead.startswith("model.layers.0 is wrong in training")
    assert [stat.cell.text for stat in found.stats[:3]] == ["3.21876", "3.21834", "3.21850"]
    skipped = group(block_of(everything(training=Training(reason="too large"))), "training")
    assert (skipped.look, skipped.lead) == ("unverified", "No step was taken: too large.")


def test_a_measure_that_does_not_apply_says_why() -> None:
    blocks = sample_blocks(2, bad=None, scale=1e-3, seed=1)
    few = metrics(1e-3, 1.0, 1.0, gain_score="NaN", not_applicable={"gain_score": "too few tokens"})
    blocks[0] = blocks[0].model_copy(update={"local": few})
    block = block_of(sample_numerics(EAGER, blocks=blocks), EAGER)
    cell = block.tables[0].rows[0].cells[7]
    assert (cell.text, cell.title) == ("n/a", "not applicable: too few tokens")

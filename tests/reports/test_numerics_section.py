"""The numerics section: what stands in it for each optional part, its figures, and text from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from day0.reports.assemble import assemble
from day0.reports.model import Report, Stages
from day0.reports.page.build import build_page, unsourced_blocks
from day0.reports.page.parts import Block, Group, Table
from day0.reports.page.text import element_id
from day0.reports.render import render
from day0.reports.results_question import results_answer
from day0.reports.strict_json import plain
from day0.tasks.numerics.record import Block as Node
from day0.tasks.numerics.record import FirstFault, NumericsFacts, NumericsRecord
from day0.tasks.numerics.record_parts import (
    ImageFeatures,
    ImageResult,
    Manifest,
    ReferenceCheck,
    TaskMetric,
    Training,
)
from support.sample_numerics import (
    metrics,
    optional_parts,
    sample_blocks,
    sample_images,
    sample_numerics,
    sample_routing,
    sample_self_test,
    sample_tower,
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
    assert names == ["routing", "output", "images", "range", "self-test", "precision", "training"]
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
    kept = {"verdict", "state", "applicability", "dtype"}

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


def test_a_failure_is_told_by_its_class_since_nothing_was_measured() -> None:
    fault = FirstFault(block="model.layers.3", metric="crash", value="NaN", tolerance="NaN")
    block = block_of(everything(first_fault=fault))
    assert block.lead.startswith("model.layers.3 is the first node that failed: crash; held against ")
    assert block.trail is not None
    assert block.trail.found == []


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


def test_a_target_that_is_exact_throughout_says_so_in_words() -> None:
    blocks = [
        block.model_copy(update={"local": metrics(0.0, 0.0, 0.0), "propagated": metrics(0.0, 0.0, 0.0)})
        for block in sample_blocks(2, bad=None, scale=1e-3, seed=1)
    ]
    block = block_of(sample_numerics(ORT, blocks=blocks))
    assert "All 5 nodes are equal to the reference to the last bit." in block.lead


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


# --- images -------------------------------------------------------------------------------------------------


def test_images_are_told_picture_by_picture() -> None:
    blocks = [*sample_tower(3), *sample_blocks(2, bad=None, scale=1e-3, seed=1)]
    record = sample_numerics(ORT, blocks=blocks, images=sample_images())
    group = next(group for group in block_of(record).groups if group.title == "Images")
    assert group.look == "pass"
    assert group.lead.startswith("5 nodes of vision tower and projector stand among the nodes compared.")
    (table,) = group.tables
    assert [row.cells[0].text for row in table.rows] == ["image", "image_aspect"]


def test_images_that_are_off_or_did_not_run_say_so() -> None:
    off = ImageResult(name="image", state="fail", reason="ratio 9 is beyond 5", metrics=metrics(1e-2, 9, 1))
    record = sample_numerics(ORT, images=ImageFeatures(state="fail", results=[off]))
    group = next(group for group in block_of(record).groups if group.title == "Images")
    assert (group.look, "The features of image are off: ratio 9 is beyond 5." in group.lead) == ("fail", True)
    answer = results_answer(record)
    assert answer[0] == "partly"
    assert "the features of image are off" in answer[1]
    record = sample_numerics(ORT, images=ImageFeatures(reason="the form is not known"))
    group = next(group for group in block_of(record).groups if group.title == "Images")
    assert group.lead == "Vision tower and projector were not compared: the form is not known."
    assert not group.tables
    assert not any(group.title == "Images" for group in block_of(sample_numerics(ORT)).groups)

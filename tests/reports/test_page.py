from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from datetime import date
from html.parser import HTMLParser

import pytest

from day0.reports.assemble import assemble
from day0.reports.model import Report, Stages
from day0.reports.page.build import build_page, unsourced_blocks
from day0.reports.page.repro import filled, reproduce
from day0.reports.page.text import clean, element_id, prose, shell
from day0.reports.pointers import unsourced_numbers
from day0.reports.records import stage_records
from day0.reports.render import render, render_runs
from day0.reports.store import parse_report, summarize
from day0.reports.strict_json import plain, strict_json
from day0.tasks.finding import Subject, Waiver, make_finding
from day0.tasks.record import StageRecord
from support.sample_records import EAGER, MODEL, ORT, REVISION, any_code, sample_inventory
from support.sample_report import sample_report


class Elements(HTMLParser):
    """Every tag with its attributes, all ids, all links within the page, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def ids(self) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get("id"))]

    @property
    def anchors(self) -> set[str]:
        links = [attributes.get("href") or "" for _, attributes in self.tags]
        return {link[1:] for link in links if link.startswith("#")}


@pytest.fixture(scope="module")
def page() -> str:
    return render(sample_report())


def test_nothing_but_markup_and_one_style(page: str) -> None:
    elements = Elements(page)
    names = [tag for tag, _ in elements.tags]
    assert "script" not in names
    assert names.count("style") == 1
    for _, attributes in elements.tags:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    outside = [
        a for _, a in elements.tags for name in ("src", "href") if (a.get(name) or "").startswith("http")
    ]
    assert outside == []
    assert "url(" not in page
    assert "@import" not in page


def test_the_policy_allows_the_style_by_its_hash_only(page: str) -> None:
    match = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert match is not None
    style = re.search(r"<style>(.*?)</style>", page, re.S)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = match[1].replace("&#39;", "'")
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "img-src data:" in policy


def test_nothing_of_our_own_is_escaped_twice(page: str) -> None:
    for sign in ("&lt;s", "&lt;code", "&lt;a", "&lt;/", "&amp;lt;", "&amp;#"):
        assert sign not in page


def test_every_link_within_the_page_leads_somewhere(page: str) -> None:
    elements = Elements(page)
    assert elements.anchors - set(elements.ids) == set()
    assert len(elements.ids) == len(set(elements.ids))


def test_the_first_screen_answers_before_anything_else(page: str) -> None:
    places = [
        page.index(f'id="{name}"') for name in ("verdict", "limitations", "recommended", "requirements")
    ]
    places += [
        page.index(f'id="stage-{stage}"') for stage in ("inventory", "coverage", "minimal", "numerics")
    ]
    places += [page.index(f'id="{name}"') for name in ("stage-plan", "stage-scale", "provenance")]
    assert places == sorted(places)
    text = " ".join(" ".join(Elements(page).text).split())
    for question in ("Do the weights load?", "Does the graph execute?", "Can the results be trusted?"):
        assert text.count(question) == 2
    assert "reference Paris." in text
    assert "target the city of" in text


def test_status_is_said_by_word_and_by_shape(page: str) -> None:
    for verdict in ("pass", "warn", "unverified", "blocked", "fail"):
        assert f'<symbol id="i-{verdict}"' in page
    shapes = re.findall(r'<symbol id="i-\w+" [^>]*>(.*?)</symbol>', page)
    assert len(set(shapes)) == 5
    words = [word for word in Elements(page).text if word.strip() == "fail"]
    assert len(words) >= 3


def test_the_same_json_gives_the_same_bytes() -> None:
    text = strict_json(sample_report())
    assert render(parse_report(text)) == render(parse_report(text))
    assert render(parse_report(text)) == render(sample_report())


HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}",
    "a\x00b\x1b[31mred\x07",
    "\u202ecod.exe\u2066",
    "\ud800lone",
    "x" * 20_000,
    "a" + "\u0301" * 500,
    "`<b>`",
    "a`b",
]


def hostile_report(name: str) -> Report:
    """A report in which every text that comes from outside is `name`."""
    shape = plain(sample_report())

    def poison(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {inner: poison(item, inner) for inner, item in value.items()}
        if isinstance(value, list):
            return [poison(item, key) for item in value]
        kept = {"verdict", "severity", "code", "stage", "answer", "id", "run", "created", "outcome", "status"}
        if isinstance(value, str) and key not in kept and value not in ("NaN", "Infinity", "-Infinity"):
            return name
        return value

    return Report.model_validate(poison(shape))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text(name: str) -> None:
    page = render(hostile_report(name))
    tags = {tag for tag, _ in Elements(page).tags}
    assert tags & {"script", "img", "b", "iframe", "object"} <= {"b"}
    assert "<b>`" not in page
    assert not [a for _, a in Elements(page).tags if any(key.startswith("on") for key in a)]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    assert "\u0301" * 4 not in page
    page.encode("utf-8")
    assert len(page) < 1_500_000


def test_a_megabyte_is_cut_and_says_so() -> None:
    endless = "y" * 1_000_000
    report = sample_report()
    finding = report.targets[1].findings[1].model_copy(update={"message": endless, "evidence": [endless]})
    targets = [report.targets[1].model_copy(update={"findings": [finding]})]
    page = render(report.model_copy(update={"model": endless, "targets": targets}))
    assert "y" * 1_300 not in page
    assert "(1,000,000 characters)" in page


def test_hostile_ids_cannot_leave_their_attribute() -> None:
    name = 'x" onmouseover="alert(1)'
    assert '"' not in element_id("node", name)
    assert element_id("a b") != element_id("a-b") != element_id("a_b")
    assert element_id("model.layers.3") == "model.layers.3"


def test_nan_is_shown_as_nan() -> None:
    report = sample_report()
    record = report.targets[0].stages.numerics
    assert record is not None
    local = record.facts.blocks[2].local
    assert local is not None
    broken = local.model_copy(update={"rel_l2": "NaN", "max_abs": "Infinity", "ratio": "NaN"})
    blocks = list(record.facts.blocks)
    blocks[2] = blocks[2].model_copy(update={"local": broken})
    facts = record.facts.model_copy(update={"blocks": blocks})
    stages = report.targets[0].stages.model_copy(
        update={"numerics": record.model_copy(update={"facts": facts})}
    )
    changed = report.model_copy(update={"targets": [report.targets[0].model_copy(update={"stages": stages})]})
    text = Elements(render(changed)).text
    assert text.count("NaN") == 2
    assert text.count("Infinity") == 1


def records(report: Report) -> Iterator[StageRecord]:
    yield report.inventory
    for result in report.targets:
        yield from (record for record in stage_records(result.stages).values() if record is not None)


def test_every_number_in_the_report_has_a_source() -> None:
    report = sample_report()
    for record in records(report):
        assert unsourced_numbers(plain(record.facts), record.sources) == []
    page = build_page(report)
    assert all(block.sources for section in page.sections for block in section.blocks)
    assert unsourced_blocks(page) == []


def test_a_number_without_a_source_is_found_and_marked() -> None:
    inventory = sample_inventory().model_copy(update={"sources": {"/totals/tensors": "headers"}})
    report = assemble("r", MODEL, inventory, {EAGER: Stages()})
    missing = unsourced_numbers(plain(inventory.facts), inventory.sources)
    assert "/totals/shards" in missing
    assert "/totals/tensors" not in missing
    assert "inventory" in unsourced_blocks(build_page(report))


def test_a_deep_model_stays_readable() -> None:
    report = sample_report(layers=400)
    findings = [
        make_finding(any_code("NUM", "error"), Subject(kind="node", name=f"n{i}"), f"node n{i} is wrong " * 9)
        for i in range(5_000)
    ]
    targets = [result.model_copy(update={"findings": findings}) for result in report.targets]
    page = render(report.model_copy(update={"targets": targets}))
    assert len(page.encode()) < 1_000_000
    assert "The 200 worst of 403 rows" in page
    assert "4,800 more are in" in page


def test_the_worst_rows_are_the_ones_shown() -> None:
    page = render(sample_report(layers=400, bad=390))
    assert f'id="numerics--{element_id(ORT)}--model.layers.390"' in page


def test_many_targets_fit() -> None:
    report = sample_report(layers=100)
    targets = [report.targets[1].model_copy(update={"target": f"eager@cpu:{i}/bf16"}) for i in range(1, 9)]
    assert len(render(report.model_copy(update={"targets": targets})).encode()) < 1_000_000


def test_a_finding_has_remedy_and_command() -> None:
    found = build_page(sample_report()).limitations
    assert [item.verdict for item in found] == ["fail", "blocked", "unverified"]
    assert all(item.remedy and item.command.startswith("day0 ") for item in found)
    assert found[0].command.endswith("--node model.layers.17")
    assert found[1].command == f"day0 health {MODEL}@{REVISION} --target {ORT} --fresh"


def test_a_remedy_names_the_model_and_the_target_at_hand() -> None:
    remedy = "Run `day0 probe MODEL --target TARGET`; see MODEL."
    told = filled(remedy, sample_report(), ORT)
    assert told == f"Run `day0 probe {MODEL}@{REVISION} --target {ORT}`; see MODEL."


def test_a_command_quotes_what_a_shell_would_read() -> None:
    report = sample_report().model_copy(update={"model": "a; rm -rf ~"})
    finding = report.targets[1].findings[-1].model_copy(update={"evidence": []})
    assert reproduce(report, finding, "").startswith(f"day0 health 'a; rm -rf ~@{REVISION}'")


def test_an_accepted_finding_is_shown_as_accepted() -> None:
    finding = sample_report().targets[1].findings[1]
    waiver = Waiver(finding=finding.id, owner="mira", reason="known", expires=date(2027, 1, 1))
    page = build_page(sample_report(waivers=(waiver,)))
    accepted = next(item for item in page.limitations if item.accepted)
    assert (accepted.verdict, accepted.accepted) == ("warn", "accepted by mira until 2027-01-01: known")
    states = {row.what: row.states[-1].words for row in page.requirements}
    assert states["Every node agrees with the reference"] == "accepted by mira until 2027-01-01"


def test_requirements_follow_the_records() -> None:
    states = {
        row.what: [state.words for state in row.states] for row in build_page(sample_report()).requirements
    }
    assert states["The release is complete and consistent in itself"] == ["validated"]
    assert states["Every operator is there and gives right results"] == ["validated", "open"]
    assert states["Every node agrees with the reference"] == ["validated", "failed"]
    assert states["Scale tier 4: batch and length"] == ["validated", "blocked"]


def test_a_run_without_any_target_has_a_page() -> None:
    page = render(assemble("r", MODEL, sample_inventory(), {}))
    assert "no target was tried" in page
    assert 'id="stage-coverage"' not in page


def test_a_run_without_any_record_has_a_page() -> None:
    page = render(assemble("r", MODEL, sample_inventory(), {EAGER: Stages()}))
    assert Elements(page).anchors - set(Elements(page).ids) == set()
    assert "left no record" in page
    assert "Nothing to act on" not in page


def test_the_list_of_runs_is_escaped() -> None:
    summary = summarize(sample_report()).model_copy(update={"model": HOSTILE[1]})
    assert "<script" not in render_runs([summary])


def test_text_helpers() -> None:
    assert clean("a\u202eb\x1b") == "a\\u202eb\\x1b"
    assert clean("x" * 30, 10) == "xxxxxxxxxx… (30 characters)"
    assert prose("see model.layers.3 & `a b`") == "see <code>model.layers.3</code> &amp; <code>a b</code>"
    assert prose("on a@b/c: x_y.") == "on <code>a@b/c</code>: <code>x_y</code>."
    assert prose("about 1.4 and/or 3.2") == "about 1.4 and/or 3.2"
    assert shell("short --a b") == "short --a b"
    assert (
        shell("vllm serve " + "m" * 70 + " --a b --c") == "vllm serve " + "m" * 70 + " \\\n  --a b \\\n  --c"
    )
    assert shell("day0 adapt '" + "m" * 80 + " --x'") == "day0 adapt '" + "m" * 80 + " --x'"

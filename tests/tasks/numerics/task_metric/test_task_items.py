from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import yaml

from day0.adapters.base.values import digest
from day0.tasks.numerics.task_metric.task_items import _NUMBERS, items, write_lm_eval_task


def test_there_are_enough_of_each_kind_and_none_twice() -> None:
    made = items()
    assert len(made) >= 200
    assert min(Counter(item.kind for item in made).values()) >= 25
    assert len({(item.context, item.choices) for item in made}) == len(made)


def test_they_are_the_same_in_every_run() -> None:
    made = [[item.kind, item.context, list(item.choices), item.answer] for item in items()]
    assert digest(made) == "061bd40450a05f76ed4bae1c43c5a8be"


def test_each_has_one_right_choice_and_its_place_says_nothing() -> None:
    made = items()
    for item in made:
        assert len(set(item.choices)) == len(item.choices) >= 2
        assert 0 <= item.answer < len(item.choices)
        assert all(choice.startswith(" ") and choice.strip() for choice in item.choices)
        assert item.context.strip() == item.context
    places = Counter(item.answer for item in made if len(item.choices) == 3)
    assert min(places.values()) > 0.25 * sum(places.values())


def test_what_can_be_computed_is_right() -> None:
    numbers = _NUMBERS
    for item in items():
        right = item.choices[item.answer].strip()
        if item.kind == "copying":
            listed, again = item.context.rstrip(",").split(". ")
            words = listed.split(", ")
            assert words[: len(again.split(", "))] == again.split(", ")
            assert right == words[len(again.split(", "))]
        if item.kind == "order" and item.context.split(",")[0] in numbers:
            first = numbers.index(item.context.split(",")[0])
            assert right == numbers[first + 4]
        if item.kind == "agreement":
            many = item.context.split()[1] in ("children",) or item.context.split()[1].endswith("s")
            assert right == ({"is", "are", "was", "were"} & {right}).pop()
            assert (right in ("are", "were")) == many


def test_the_task_for_the_harness_is_local(tmp_path: Path) -> None:
    folder = write_lm_eval_task(tmp_path / "task's folder")
    task = yaml.safe_load((folder / "day0_choices.yaml").read_text())
    assert task["dataset_path"] == "json"
    data = Path(task["dataset_kwargs"]["data_files"]["test"])
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    assert [(row["context"], row["answer"]) for row in rows] == [
        (item.context, item.answer) for item in items()
    ]

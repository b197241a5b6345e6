from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.flows.waivers import add_waiver, read_waivers
from day0.tasks.finding import Waiver

TODAY = date(2026, 5, 1)


def waiver(**changes: object) -> Waiver:
    values = {"finding": "0123456789ab", "owner": "ada", "reason": "known", "expires": date(2026, 6, 1)}
    return Waiver.model_validate(values | changes)


def test_a_waiver_is_kept_and_replaced(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert read_waivers(store) == ()
    add_waiver(store, waiver(), TODAY)
    add_waiver(store, waiver(finding="ffffffffffff"), TODAY)
    add_waiver(store, waiver(reason="fixed upstream"), TODAY)
    assert [(each.finding, each.reason) for each in read_waivers(store)] == [
        ("ffffffffffff", "known"),
        ("0123456789ab", "fixed upstream"),
    ]


@pytest.mark.parametrize(
    "changes",
    [{"finding": "INV012"}, {"owner": " "}, {"reason": ""}, {"expires": date(2026, 4, 30)}],
)
def test_a_waiver_without_owner_reason_or_time_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        add_waiver(RunStore(tmp_path), waiver(**changes), TODAY)
    assert caught.value.code == "E155"
    assert not (tmp_path / "waivers.json").exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "waivers.json").write_text('{"a": 1}')
    with pytest.raises(InputError, match="not a list of waivers") as caught:
        read_waivers(RunStore(tmp_path))
    assert caught.value.code == "E154"

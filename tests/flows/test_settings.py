from __future__ import annotations

import os
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.flows.settings import load_settings, run_options


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DAY0_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_flags_win_over_environment_over_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings({}).probe_budget == 60
    (tmp_path / "day0.toml").write_text('store = "from-file"\nprobe_budget = 1\ntimeout = 5\n')
    monkeypatch.setenv("DAY0_PROBE_BUDGET", "2")
    monkeypatch.setenv("DAY0_TIMEOUT", "6")
    settings = load_settings({"timeout": 7.0, "probe_budget": None})
    assert (settings.store, settings.probe_budget, settings.timeout) == ("from-file", 2, 7)


def test_sizes_and_commands_are_read_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAY0_WORKER_COMMAND", "docker exec -i 'my box' python")
    options = run_options(load_settings({"memory": "3GiB"}), fresh=True)
    assert options.memory_limit == 3 * 2**30
    assert list(options.worker_command) == ["docker", "exec", "-i", "my box", "python"]
    assert options.fresh


def test_the_file_may_give_the_command_as_a_list(tmp_path: Path) -> None:
    (tmp_path / "day0.toml").write_text('worker_command = ["ssh", "box", "python3"]\n')
    assert load_settings({}).worker_command == ("ssh", "box", "python3")


@pytest.mark.parametrize(
    ("toml", "environment", "flags", "code"),
    [
        ("stroe = 'x'", {}, {}, "E150"),
        ("timeout = 'soon'", {}, {}, "E150"),
        ("timeout = ", {}, {}, "E151"),
        ("", {"DAY0_STROE": "x"}, {}, "E150"),
        ("", {"DAY0_RUNNER": "rockets"}, {}, "E150"),
        ("", {}, {"memory": "much"}, "E150"),
        ("", {}, {"memory": "0"}, "E150"),
        ("", {}, {"timeout": -1.0}, "E150"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    toml: str,
    environment: dict[str, str],
    flags: dict[str, object],
    code: str,
) -> None:
    if toml:
        (tmp_path / "day0.toml").write_text(toml)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as caught:
        load_settings(flags)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize("given", ["lots", "8 parsecs"])
def test_a_size_that_cannot_be_read_is_told_how_one_is_written(given: str) -> None:
    with pytest.raises(InputError, match=r"e\.g\. 8GiB") as caught:
        load_settings({"memory": given})
    assert repr(given) in caught.value.message


def test_offline_reaches_the_hub_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    load_settings({"offline": True})
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_misspelt_key_of_the_file_is_told_its_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "day0.toml").write_text("stroe = 'x'\n")
    with pytest.raises(InputError, match=r"'stroe', which is no setting of Day0 .* Did you mean store\?"):
        load_settings({})

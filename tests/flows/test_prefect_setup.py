from __future__ import annotations

import os
from pathlib import Path

import pytest

from day0.flows.prefect_setup import find_prefect, set_prefect_defaults

URL = "http://127.0.0.1:4200/api"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_without_anything_it_is_the_embedded_server(tmp_path: Path) -> None:
    place = find_prefect()
    assert place == (tmp_path / "home", "", "", "default")


def test_the_active_profile_names_the_server(tmp_path: Path) -> None:
    text = f'active = "team"\n[profiles.team]\nPREFECT_API_URL = "{URL}"\n[profiles.other]\n'
    (tmp_path / "home" / "profiles.toml").write_text(text)
    place = find_prefect()
    assert (place.profile, place.api_url) == ("team", URL)
    assert place.origin.endswith("profiles.toml")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".env", f"# comment\nexport PREFECT_API_URL='{URL}'\n"),
        ("prefect.toml", f'[api]\nurl = "{URL}"\n'),
        ("pyproject.toml", f'[tool.prefect]\napi.url = "{URL}"\n'),
    ],
)
def test_files_of_the_current_folder_count(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    assert find_prefect()[2:] == (URL, file)


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prefect.toml").write_text('[api]\nurl = "http://elsewhere/api"\n')
    monkeypatch.setenv("PREFECT_API_URL", URL)
    assert find_prefect()[2:] == (URL, "PREFECT_API_URL")


def test_broken_files_are_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "prefect.toml").write_text("= = =")
    (tmp_path / "home" / "profiles.toml").write_bytes(b"\xff\xfe")
    assert find_prefect().api_url == ""


def test_prefects_own_reading_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import Settings

    (tmp_path / "prefect.toml").write_text(f'[api]\nurl = "{URL}"\n')
    assert Settings().api.url == find_prefect().api_url


def test_defaults_leave_what_the_person_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_LOGGING_EXTRA_LOGGERS", "mine")
    monkeypatch.delenv("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", raising=False)
    monkeypatch.delenv("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", raising=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        set_prefect_defaults(quiet=False)
        assert os.environ["PREFECT_LOGGING_EXTRA_LOGGERS"] == "mine"
        assert os.environ["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] == "180"
        assert "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL" not in os.environ
        set_prefect_defaults(quiet=True)
        assert os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] == "CRITICAL"

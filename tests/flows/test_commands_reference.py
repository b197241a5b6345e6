"""Where a bundle cannot be written, `day0 reference capture` says so before it opens the model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.flows.commands_reference import capture


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder", "it is a folder"),
        ("none/b.day0ref", "there is no folder"),
        ("shut/b.day0ref", "may not be"),
    ],
)
def test_a_place_at_which_no_file_can_appear_is_refused_before_the_walk(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "shut").mkdir(mode=0o500)
    if os.access(
        tmp_path / "shut", os.W_OK
    ):  # root may write anywhere; the answer for others is put in its place
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "shut")
    with pytest.raises(InputError, match=said) as told:
        capture("no/model", out=str(tmp_path / name))
    assert told.value.code == "E194"

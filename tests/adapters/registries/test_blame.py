"""Who keeps a layer of a stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.registries.blame import owner_of


@pytest.mark.parametrize(
    ("addresses", "owner"),
    [
        ("", "acme-npu"),
        ("Home-page: https://acme.example\n", "acme-npu (https://acme.example)"),
        ("Project-URL: Docs, https://d.example\n", "acme-npu (https://d.example)"),
        (
            "Project-URL: Source, https://s.example\nProject-URL: Bug Tracker, https://b.example\n",
            "acme-npu (https://b.example)",
        ),
    ],
    ids=["no address", "home page", "some address", "tracker first"],
)
def test_a_vendors_stack_is_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: str, owner: str
) -> None:
    info = tmp_path / "acme_npu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-npu\nVersion: 1.0\n{addresses}")
    (info / "entry_points.txt").write_text("[day0.targets]\nacme = acme_npu.stack:AcmeStack\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [owner_of("acme", "npu", layer) for layer in ("adapter", "driver")] == [owner, owner]
    assert [owner_of("acme", "npu", layer) for layer in ("", "worker")] == ["", ""]


def test_days_own_stacks_are_not_the_packages_that_bring_them() -> None:
    assert owner_of("eager", "cuda", "driver") == ""
    assert owner_of("eager", "cpu", "library").startswith("PyTorch")

from __future__ import annotations

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.sources.hub_address import hub_address

COMMIT = "a" * 40
HUB = "https://huggingface.co"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"{HUB}/org/name", ("org/name", None)),
        (f"{HUB}/org/name/", ("org/name", None)),
        (f"{HUB}/gpt2", ("gpt2", None)),
        (f"{HUB}/gpt2/tree/main", ("gpt2", "main")),
        (f"{HUB}/org/name/tree/{COMMIT}", ("org/name", COMMIT)),
        (f"{HUB}/org/name/blob/v1/config.json?x=1#L3", ("org/name", "v1")),
        (f"{HUB}/org/name/tree/refs%2Fpr%2F3", ("org/name", "refs/pr/3")),
        (f"{HUB}/org/name@v2", ("org/name", "v2")),
        ("https://hf.co/org/name", ("org/name", None)),
        ("http://127.0.0.1:9/mirror/org/name/tree/main", ("org/name", "main")),
        ("http://127.0.0.1:9/org/name", None),
        ("http://127.0.0.1:8/mirror/org/name", None),
        ("https://example.org/org/name", None),
        ("https://huggingface.co.example.org/org/name", None),
        (f"{HUB}/datasets/org/name", None),
        (f"{HUB}/", None),
        ("https://user:word@huggingface.co/org/name", None),
        ("s3://bucket/prefix", None),
        ("org/name", None),
    ],
)
def test_pages_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, address: str, expected: tuple[str, str | None] | None
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9/mirror")
    assert hub_address(address, None) == (expected or (address, None))


def test_two_revisions() -> None:
    assert hub_address(f"{HUB}/org/name/tree/v1", "v1") == ("org/name", "v1")
    with pytest.raises(InputError, match="E135"):
        hub_address(f"{HUB}/org/name/tree/v1", "v2")

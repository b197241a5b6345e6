from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.tasks.numerics.trust.samples import Sample, load_samples


def test_samples_are_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "samples.json"
    file.write_text(
        json.dumps([{"prompt": "a", "output": "b", "source": "card"}, {"prompt": "ü", "output": "d"}])
    )
    assert load_samples(file) == (Sample("a", "b"), Sample("ü", "d"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("{}", "is no list of 1 to 64 samples"),
        ("[]", "is no list of 1 to 64 samples"),
        ("[3]", "has no prompt of 1 to 20000 characters in entry 0"),
        ('[{"prompt": "a", "output": ""}]', "has no output of 1 to 20000 characters in entry 0"),
        ('[{"prompt": "a", "output": ["b"]}]', "has no output"),
        (json.dumps([{"prompt": "a" * 20_001, "output": "b"}]), "has no prompt"),
        (json.dumps([{"prompt": "a", "output": "b"}] * 65), "is no list"),
        (" " * (4 * 2**20 + 1), "has more than 4194304 bytes"),
    ],
    ids=range(10),
)
def test_what_is_no_list_of_samples_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "samples.json"
    file.write_text(text)
    with pytest.raises(InputError, match="E186") as caught:
        load_samples(file)
    assert said in caught.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="E186"):
        load_samples(tmp_path / "none.json")

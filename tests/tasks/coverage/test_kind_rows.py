"""Rows of kinds: kept, merged, read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Fingerprint
from day0.tasks.coverage.kind_rows import (
    KindRow,
    KindRows,
    add_kinds,
    dump_kinds,
    load_kinds,
    parse_kinds,
    row_key,
    store_path,
)

NAME = "inductor@cpu"
OLD = Fingerprint(family="inductor 2.13", exact={"torch": "2.13.0"})
NEW = Fingerprint(family="inductor 2.13", exact={"torch": "2.13.1"})
OTHER = Fingerprint(family="inductor 3.0", exact={"torch": "3.0.0"})


def row(fingerprint: Fingerprint, **changes: object) -> KindRow:
    values = {"kind": "k1", "case": "prefill", "dtype": "bf16", "outcome": "ran"}
    return KindRow.model_validate({**values, "fingerprint": fingerprint.digest, **changes})


def of(*rows: KindRow) -> KindRows:
    prints = {one.digest: one for one in (OLD, NEW, OTHER)}
    return KindRows(NAME).merged(rows, prints)


def test_what_is_added_is_laid_over_and_read_again(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert load_kinds(store, NAME).rows == {}
    add_kinds(store, of(row(OLD), row(OLD, case="length 7", graphs=1)))
    add_kinds(store, of(row(OLD, outcome="crash", detail="died")))
    read = load_kinds(store, NAME)
    assert {(one.case, one.outcome) for one in read.rows.values()} == {
        ("prefill", "crash"),
        ("length 7", "ran"),
    }
    text = store.read(store_path(NAME)).decode()
    assert dump_kinds(parse_kinds(NAME, text)) == text
    # One row a line, fingerprints that no row has left out.
    assert sum('"kind":"k1"' in line for line in text.splitlines()) == 2
    assert list(json.loads(text)["fingerprints"]) == [OLD.digest]


@pytest.mark.parametrize("text", ["", "[]", '{"kinds": "inductor@cpu", "format": 9, "rows": []}'])
def test_a_damaged_file_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"kinds of inductor@cpu cannot be read") as caught:
        parse_kinds(NAME, text)
    assert caught.value.code == "E138"


def test_a_damaged_file_is_passed_over_and_kept_aside(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    text = dump_kinds(of(row(OLD), row(OLD, case="length 7")))
    torn = text.replace('"case":"length 7",', "").encode()
    store.write(store_path(NAME), torn)
    read = load_kinds(store, NAME)
    assert [one.case for one in read.rows.values()] == ["prefill"]
    assert [unread.partition(":")[0] for unread in read.unread] == [
        "1 of 2 rows of the file of kinds kinds/inductor@cpu.json of the run store cannot be read"
    ]
    add_kinds(store, of(row(OLD, case="length 7")))
    assert store.read(store_path(NAME) + ".damaged") == torn
    healed = load_kinds(store, NAME)
    assert (healed.rows, healed.unread) == (of(row(OLD), row(OLD, case="length 7")).rows, ())


def test_a_row_speaks_for_its_family_and_no_other() -> None:
    rows = of(row(OLD, date="2026-01-02"))
    key = row_key("k1", "prefill", "bf16", {})
    known = [rows.lookup(key, fingerprint) for fingerprint in (OLD, NEW, OTHER)]
    assert [found[1] if found else None for found in known] == ["measured", "inherited", None]
    assert rows.lookup(row_key("k1", "prefill", "fp32", {}), OLD) is None
    assert rows.lookup(row_key("k1", "prefill", "bf16", {"attn": "eager"}), OLD) is None


def test_the_digest_follows_what_is_known_and_not_how_long_it_took() -> None:
    known = of(row(OLD)).digest_of(["k1"], "bf16", OLD)
    assert of(row(OLD, compile_seconds=3.0, date="2026-02-02")).digest_of(["k1"], "bf16", OLD) == known
    assert of(row(OLD), row(OLD, kind="k2")).digest_of(["k1"], "bf16", OLD) == known
    assert of(row(OLD, outcome="crash")).digest_of(["k1"], "bf16", OLD) != known
    assert of(row(OLD)).digest_of(["k1"], "bf16", NEW) != known
    assert of(row(OLD), row(OLD, case="length 7")).digest_of(["k1"], "bf16", OLD) != known

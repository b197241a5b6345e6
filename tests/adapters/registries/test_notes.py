from __future__ import annotations

import json

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.files import add_to_store, load_registry, stored_registry
from day0.adapters.registries.notes import notes_path
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import RegistryRow

_HERE = Fingerprint(family="acme 1", exact={"acme": "1.2"})
_ISSUE = "https://example.org/issues/7"


def _rows(*rows: RegistryRow) -> Registry:
    given = [row.model_copy(update={"fingerprint": _HERE.digest}) for row in rows]
    return Registry("acme@npu").merged(given, {_HERE.digest: _HERE})


def _issues(store: RunStore) -> dict[str, str]:
    return {row.key: row.issue for row in load_registry(store, "acme@npu").rows.values()}


def test_a_note_speaks_of_faulty_rows_and_outlives_a_probe(tmp_path: object) -> None:
    store = RunStore(str(tmp_path))
    wrong = RegistryRow(op="aten.exp.default", dtypes=["bf16"], ranks=[2], status="wrong")
    other = RegistryRow(op="aten.exp.default", dtypes=["fp32"], ranks=[2], status="wrong")
    sound = RegistryRow(op="aten.exp.default", dtypes=["bf16"], ranks=[3], status="native")
    add_to_store(store, _rows(wrong, other, sound))
    note = {"op": "aten.exp.default", "dtypes": ["bf16"], "issue": _ISSUE, "until": "2027-01-31"}
    store.write(notes_path("acme@npu"), json.dumps([note]).encode())
    expected = {wrong.key: _ISSUE, other.key: "", sound.key: ""}
    assert _issues(store) == expected
    # What a probe hands back after it read the rows with their notes.
    add_to_store(store, load_registry(store, "acme@npu"))
    assert _issues(store) == expected
    assert {row.issue for row in stored_registry(store, "acme@npu").rows.values()} == {""}
    store.remove(notes_path("acme@npu"))
    assert set(_issues(store).values()) == {""}


def test_notes_that_cannot_be_read_say_where_they_are(tmp_path: object) -> None:
    store = RunStore(str(tmp_path))
    store.write(notes_path("acme@npu"), b'{"op": 3}')
    (unread,) = load_registry(store, "acme@npu").unread
    assert unread.startswith("the notes on the registry of acme@npu cannot be read")

from __future__ import annotations

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.files import (
    add_to_store,
    dump_registry,
    load_registry,
    parse_registry,
    shipped_registry,
    store_path,
    stored_registry,
)
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import RegistryRow

HERE = Fingerprint(family="torch 2.13 x avx2", exact={"torch": "2.13.0", "driver": "2"})
NEAR = Fingerprint(family="torch 2.13 x avx2", exact={"torch": "2.13.0", "driver": "1"})
FAR = Fingerprint(family="torch 2.12 x avx2", exact={"torch": "2.12.0"})


def _row(fingerprint: Fingerprint, status: str = "native", **fields: object) -> RegistryRow:
    values: dict[str, object] = {
        "op": "aten.mm.default",
        "dtypes": ["bf16", "bf16"],
        "ranks": [2, 2],
        **fields,
    }
    return RegistryRow.model_validate({**values, "status": status, "fingerprint": fingerprint.digest})


def _registry(*pairs: tuple[Fingerprint, RegistryRow]) -> Registry:
    return Registry("eager@cpu").merged(
        [row for _, row in pairs], {fingerprint.digest: fingerprint for fingerprint, _ in pairs}
    )


KEY = _row(HERE).key


def test_the_very_fingerprint_is_measured() -> None:
    registry = _registry((NEAR, _row(NEAR, "wrong")), (HERE, _row(HERE)))
    known = registry.lookup(KEY, HERE)
    assert known is not None
    assert (known.grade, known.row.status) == ("measured", "native")


def test_another_exact_version_of_the_family_is_inherited() -> None:
    known = _registry((NEAR, _row(NEAR, "wrong"))).lookup(KEY, HERE)
    assert known is not None
    assert (known.grade, known.row.status) == ("inherited", "wrong")


def test_another_family_says_nothing() -> None:
    assert _registry((FAR, _row(FAR))).lookup(KEY, HERE) is None
    assert _registry((HERE, _row(HERE))).lookup("aten.mm.default|fp32,fp32|2,2", HERE) is None


def test_declared_rows_are_never_called_measured() -> None:
    declared = _row(HERE, method="declared")
    known = _registry((HERE, declared)).lookup(KEY, HERE)
    assert known is not None
    assert known.grade == "declared"
    both = _registry((HERE, declared), (NEAR, _row(NEAR, "wrong")))
    elsewhere = Fingerprint(family=HERE.family, exact={"driver": "3"})
    known = both.lookup(KEY, elsewhere)
    assert known is not None
    assert (known.grade, known.row.status) == ("inherited", "wrong")


def test_a_row_laid_over_another_replaces_it() -> None:
    registry = _registry((HERE, _row(HERE, "missing"))).overlaid(_registry((HERE, _row(HERE))))
    assert [row.status for row in registry.rows.values()] == ["native"]


def test_the_digest_follows_only_the_rows_asked_for() -> None:
    before = _registry((HERE, _row(HERE)))
    other = _row(HERE, op="aten.silu.default", dtypes=["bf16"], ranks=[3])
    after = before.overlaid(_registry((HERE, other)))
    assert before.digest_of([KEY], HERE) == after.digest_of([KEY], HERE)
    assert before.digest_of([KEY, other.key], HERE) != after.digest_of([KEY, other.key], HERE)


def test_files_read_back_and_hold_one_row_a_line(tmp_path: object) -> None:
    registry = _registry(
        (HERE, _row(HERE, error=0.0019, tolerance=0.016, shapes=[[2, 3], [3, 4]], probe="ab", seed=20)),
        (NEAR, _row(NEAR, "wrong", error="NaN", reason="1 of 8 values are NaN")),
    )
    text = dump_registry(registry)
    assert parse_registry("eager@cpu", text) == registry
    assert dump_registry(parse_registry("eager@cpu", text)) == text
    assert sum('"op":' in line for line in text.splitlines()) == 2


def test_a_persons_probes_lie_over_the_shipped_rows(tmp_path: object) -> None:
    store = RunStore(str(tmp_path))
    assert load_registry(store, "eager@cpu") == shipped_registry("eager@cpu")
    add_to_store(store, _registry((HERE, _row(HERE, "missing"))))
    add_to_store(store, _registry((HERE, _row(HERE))))
    assert stored_registry(store, "eager@cpu") == _registry((HERE, _row(HERE)))
    known = load_registry(store, "eager@cpu").lookup(KEY, HERE)
    assert known is not None
    assert known.row.status == "native"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"registry": "other@cpu", "format": 1}', '{"registry": "eager@cpu",']
)
def test_a_damaged_file_is_said_in_one_sentence(tmp_path: object, text: str) -> None:
    store = RunStore(str(tmp_path))
    store.write(store_path("eager@cpu"), text.encode())
    with pytest.raises(InputError, match="registry file of eager@cpu"):
        load_registry(store, "eager@cpu")


@pytest.mark.parametrize("name", ["eager@cpu", "onnxruntime@cpu"])
def test_shipped_registries_are_measured_sorted_and_complete(name: str) -> None:
    registry = shipped_registry(name)
    assert registry.rows
    for (_, fingerprint), row in registry.rows.items():
        assert fingerprint in registry.fingerprints
        assert row.method == "replay"
        assert row.probe
    from importlib import resources

    text = resources.files("day0.adapters.registries").joinpath(f"{name.replace('@', '-')}.json").read_text()
    assert dump_registry(registry) == text

from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.base.errors import InputError
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.blame import layer_of, owner_of
from day0.adapters.registries.files import (
    add_to_store,
    dump_registry,
    load_registry,
    parse_registry,
    shipped_registry,
    store_path,
    stored_registry,
)
from day0.adapters.registries.merge import merge
from day0.adapters.registries.query import select
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import CHECKS, Constraint, RegistryRow

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
    "text", ["", "{}", "[]", '{"registry": "other@cpu", "format": 2}', '{"registry": "eager@cpu",']
)
def test_a_damaged_file_is_said_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="registry file of eager@cpu cannot be read: "):
        parse_registry("eager@cpu", text)


@pytest.mark.parametrize("name", ["eager@cpu", "onnxruntime@cpu", "openvino@cpu", "inductor@cpu"])
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


def test_of_related_versions_the_one_measured_last_speaks() -> None:
    older = Fingerprint(family=HERE.family, exact={"driver": "0"})
    for first, last in ((NEAR, older), (older, NEAR)):
        known = _registry(
            (first, _row(first, "wrong", date="2026-11-28")), (last, _row(last, date="2026-11-29"))
        ).lookup(KEY, HERE)
        assert known is not None
        assert (known.grade, known.row.status) == ("inherited", "native")


def test_what_nobody_tried_here_needs_a_probe_and_inherited_rows_come_first() -> None:
    declared = _row(HERE, method="declared")
    assert _registry().needs_probe(KEY, HERE)
    assert _registry((NEAR, _row(NEAR))).needs_probe(KEY, HERE)
    assert _registry((HERE, declared)).needs_probe(KEY, HERE)
    assert not _registry((HERE, _row(HERE))).needs_probe(KEY, HERE)
    ranks = [
        _registry(*pairs).probe_rank(KEY, HERE)
        for pairs in ([(NEAR, _row(NEAR))], [(HERE, declared)], [], [(HERE, _row(HERE))])
    ]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 4


def test_a_row_that_refuses_shapes_says_nothing_of_others() -> None:
    refused = Constraint(shapes=[[7, 7], [7, 7]], reason="shape: odd sizes", mark="b" * 12)
    row = _row(HERE, tried=["a" * 12], constraints=[refused])
    registry = _registry((HERE, row))
    assert not registry.needs_probe(KEY, HERE, ["a" * 32, "b" * 32])
    assert registry.needs_probe(KEY, HERE, ["c" * 32])
    assert row.refusal(["a" * 32]) is None
    assert row.refusal(["a" * 32, "b" * 32]) == refused


def test_a_list_that_knows_no_dtypes_is_still_found_but_never_sound() -> None:
    listed = _row(FAR, method="declared", dtypes=[], ranks=[])
    registry = _registry((FAR, listed))
    assert not registry.rows
    known = registry.lookup(KEY, HERE)
    assert known is not None
    assert (known.grade, known.row.status, known.sound) == ("declared", "native", False)
    assert registry.overlaid(_registry((HERE, _row(HERE)))).declared == registry.declared


def test_rows_of_the_older_format_are_read_as_inherited() -> None:
    text = dump_registry(_registry((HERE, _row(HERE)))).replace('"format": 2', '"format": 1')
    registry = parse_registry("eager@cpu", text)
    known = registry.lookup(KEY, HERE)
    assert known is not None
    assert known.grade == "inherited"
    assert dump_registry(parse_registry("eager@cpu", dump_registry(registry))) == dump_registry(registry)


def test_a_later_format_is_refused() -> None:
    text = dump_registry(_registry((HERE, _row(HERE)))).replace('"format": 2', '"format": 3')
    with pytest.raises(InputError, match="in format 3"):
        parse_registry("eager@cpu", text)


def test_rows_are_selected_by_what_is_asked() -> None:
    relu = _row(HERE, op="aten.relu.default", dtypes=["fp32"], ranks=[2])
    registry = _registry((HERE, _row(HERE, "missing")), (NEAR, relu), (FAR, _row(FAR, method="declared")))
    assert [known.row.op for known in select(registry, op="aten.mm")] == ["aten.mm.default"] * 2
    assert [known.row.status for known in select(registry, status="missing")] == ["missing"]
    assert [known.row.op for known in select(registry, dtype="fp32")] == ["aten.relu.default"]
    assert [known.grade for known in select(registry, grade="declared")] == ["declared"]
    assert [known.row.status for known in select(registry, fingerprint=HERE)] == ["missing", "native"]


def test_merging_keeps_the_newer_row_whichever_comes_first() -> None:
    old = _registry((HERE, _row(HERE, "missing", date="2026-11-01")))
    new = _registry((HERE, _row(HERE, date="2026-11-02", checks=CHECKS)), (NEAR, _row(NEAR)))
    for first, second in ((old, new), (new, old)):
        merged, disagreements = merge(first, second)
        assert merged.rows[KEY, HERE.digest].status == "native"
        assert len(merged.rows) == 2
        assert [(one.kept.status, one.dropped.status) for one in disagreements] == [("native", "missing")]


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ({"status": "wrong"}, {"checks": ["example"]}, "old"),  # one call proves nothing against a fault
        ({"status": "wrong"}, {"checks": CHECKS}, "new"),
        ({"checks": CHECKS}, {"checks": ["example"]}, "old"),
        ({"checks": CHECKS}, {"status": "wrong", "checks": ["example"]}, "new"),
        ({"checks": ["example"]}, {"checks": ["example"], "error": 1e-6}, "new"),
        ({"status": "wrong"}, {"status": "unknown"}, "old"),
        ({"checks": ["example"]}, {"status": "unknown"}, "old"),
    ],
)
def test_a_newer_row_of_less_proof_does_not_stand(
    old: dict[str, object], new: dict[str, object], kept: str
) -> None:
    rows = {
        name: _row(HERE).model_copy(update={"date": date, **fields})
        for name, date, fields in (("old", "2026-11-01", old), ("new", "2026-11-02", new))
    }
    both = [_registry((HERE, row)) for row in rows.values()]
    for first, second in (both, both[::-1]):
        merged, disagreements = merge(first, second)
        assert merged.rows[KEY, HERE.digest] == rows[kept]
        assert len(disagreements) == (rows["old"].status != rows["new"].status)


def test_of_one_day_a_fault_outlives_its_absence() -> None:
    fault, none = _registry((HERE, _row(HERE, "wrong"))), _registry((HERE, _row(HERE)))
    assert merge(fault, none)[0].rows[KEY, HERE.digest].status == "wrong"
    assert merge(none, fault)[0].rows[KEY, HERE.digest].status == "wrong"


def test_registries_of_two_targets_are_not_merged() -> None:
    with pytest.raises(InputError, match="E171"):
        merge(Registry("eager@cpu"), Registry("eager@npu"))


def test_an_installed_package_brings_its_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "acme_registries_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    registry = Registry("acme@npu").merged([_row(HERE)], {HERE.digest: HERE})
    (package / "acme-npu.json").write_text(dump_registry(registry))
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[day0.registries]\nacme = acme_registries_of_a_test\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert shipped_registry("acme@npu") == registry
    (info / "entry_points.txt").write_text("[day0.registries]\nacme = acme_that_is_not_there\n")
    (unread,) = shipped_registry("acme@npu").unread
    assert "package acme_that_is_not_there (entry point 'acme') cannot be read" in unread


def test_a_broken_package_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry("acme@npu").merged([_row(HERE)], {HERE.digest: HERE})
    bodies = {"acme_raises": "raise RuntimeError('no driver')", "acme_sound": "", "acme_torn": ""}
    for name, body in bodies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)
        text = dump_registry(registry)
        (tmp_path / name / "acme-npu.json").write_text(text if name == "acme_sound" else text[:-40])
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[day0.registries]\n" + "".join(f"{name} = {name}\n" for name in bodies)
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = shipped_registry("acme@npu")
    assert found.rows == registry.rows
    assert ["no driver" in one for one in found.unread] == [True, False]
    assert "acme-npu.json of the package acme_torn cannot be read" in found.unread[1]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"[]", b"\xff\x00\xfe random", b'{"registry": "eager@cpu", "format": 2', b"[" * 100_000],
)
def test_a_damaged_file_of_the_store_is_told_and_kept_aside(tmp_path: Path, damaged: bytes) -> None:
    store = RunStore(tmp_path)
    store.write(store_path("eager@cpu"), damaged)
    shipped, loaded = shipped_registry("eager@cpu"), load_registry(store, "eager@cpu")
    assert (loaded.rows.keys(), shipped.unread) == (shipped.rows.keys(), ())
    (unread,) = loaded.unread
    assert unread.startswith("the registry file registries/eager@cpu.json of the run store cannot be read")
    add_to_store(store, _registry((HERE, _row(HERE))))
    assert store.read(store_path("eager@cpu") + ".damaged") == damaged
    healed = stored_registry(store, "eager@cpu")
    assert (set(healed.rows), healed.unread) == ({(KEY, HERE.digest)}, ())


def test_bad_rows_do_not_take_whole_ones_with_them(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    text = dump_registry(_registry((HERE, _row(HERE)), (HERE, _row(HERE, "wrong", ranks=[3, 3]))))
    bad = '{"op": 7, "status": "native"},\n  "nonsense",\n  {"op": "aten.mm.default"'
    store.write(
        store_path("eager@cpu"), text.replace('"rows": [\n  {', f'"rows": [\n  {bad}}},\n  {{').encode()
    )
    found = stored_registry(store, "eager@cpu")
    assert sorted(row.status for row in found.rows.values()) == ["native", "wrong"]
    (unread,) = found.unread
    assert unread.startswith("3 of 5 rows of the registry file registries/eager@cpu.json")
    with pytest.raises(InputError, match="E138"):
        parse_registry("eager@cpu", store.read(store_path("eager@cpu")).decode())


@pytest.mark.parametrize(
    ("stack", "kind", "message", "layer"),
    [
        ("eager", "missing_operator", "Could not run 'aten::mm'", "adapter"),
        ("eager", "dtype", "not implemented for 'Half'", "library"),
        ("onnxruntime", "runtime", "TorchExportError: Failed to export", "compiler"),
        ("onnxruntime", "runtime", "ONNXRuntimeError : 9 : NOT_IMPLEMENTED", "runtime"),
        ("openvino", "missing_operator", "OpConversionFailure: aten::x", "compiler"),
        ("openvino", "runtime", "RuntimeError: Expected inputs of BF16 type", "compiler"),
        ("openvino", "shape", "Exception from src/inference/src/cpp/core.cpp:117: Check", "runtime"),
        ("inductor", "memory", "out of memory", "worker"),
        ("a vendor's", "missing_operator", "no kernel", "adapter"),
    ],
)
def test_a_layer_is_named_by_the_stack_and_its_words(stack: str, kind: str, message: str, layer: str) -> None:
    assert layer_of(stack, kind, message) == layer
    assert owner_of("eager", "cpu", "library").startswith("PyTorch")
    assert owner_of("a vendor's", "npu", "driver") == ""


def test_a_torn_row_costs_no_other(tmp_path: Path) -> None:
    fingerprint = Fingerprint(family="f", exact={"torch": "1"})
    rows = [
        RegistryRow(op=f"aten.op{place}.default", dtypes=["fp32"], ranks=[1], status="native",
                    fingerprint=fingerprint.digest)
        for place in range(5)
    ]  # fmt: skip
    text = dump_registry(Registry("eager@cpu").merged(rows, {fingerprint.digest: fingerprint}))
    lines = text.splitlines()
    place = next(place for place, line in enumerate(lines) if "aten.op2" in line)
    lines[place] = lines[place][: len(lines[place]) // 2]
    store = RunStore(str(tmp_path))
    data = "\n".join(lines).encode().replace(b"aten.op4", b"aten.\xffp4")  # no letter of UTF-8
    store.write(store_path("eager@cpu"), data)
    registry = stored_registry(store, "eager@cpu")
    kept = {row.op for row in registry.all_rows()}
    assert kept == {f"aten.op{place}.default" for place in (0, 1, 3)}
    (said,) = registry.unread
    assert "damaged" in said

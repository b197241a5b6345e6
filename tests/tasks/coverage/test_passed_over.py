"""A damaged file or a broken package is told, and everything else is answered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.operator_capture import Capture, CaptureRequest
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.adapters.registries.files import add_to_store, load_registry, store_path
from day0.adapters.registries.registry import Registry
from day0.adapters.registries.row import CHECKS, RegistryRow
from day0.tasks.coverage import kind_rows
from day0.tasks.coverage.measure import measure_coverage
from day0.tasks.coverage.question import Question
from day0.tasks.coverage.record import CoverageRecord
from support.captured import calls_of

HERE = Fingerprint(family="simulated 1", exact={"simulated": "1"})
SPEC = TargetSpec.parse("simulated@cpu/bf16")
SILU = "aten.silu.default"
Install = Callable[[dict[str, str], dict[str, str]], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs modules, by name, with entry points of `day0.workarounds`."""

    def installed(entries: dict[str, str], modules: dict[str, str]) -> None:
        folder = tmp_path / "site"
        info = folder / "somebody-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[day0.workarounds]", *lines, ""]))
        for name, body in modules.items():
            (folder / f"{name}.py").write_text(body)
        monkeypatch.syspath_prepend(str(folder))

    return installed


def _known(status: str = "native") -> Registry:
    """Rows of all operators, so that nothing has to be tried."""
    calls = {call.row_key: call for call in calls_of("llama")}.values()
    rows = [
        RegistryRow(
            op=call.op,
            dtypes=call.dtypes,
            ranks=[len(shape) for shape in call.shapes],
            result_dtype=call.result_dtype,
            variant=call.variant,
            status=status if call.op == SILU else "native",
            checks=CHECKS,
            fingerprint=HERE.digest,
        )
        for call in calls
    ]
    return Registry("simulated@cpu").merged(rows, {HERE.digest: HERE})


def _measured(registry: Registry, **options: Any) -> CoverageRecord:
    description = TargetDescription(
        api=1, capabilities=["op"], dtypes={}, devices=[], fingerprint=HERE, anomalies=[]
    )
    capture = Capture(request=CaptureRequest(), calls=calls_of("llama"), captured_dtype="bf16")
    return measure_coverage(
        Question(
            spec=SPEC,
            description=description,
            capture=capture,
            registry=registry,
            config={},
            config_digest="c",
            open_target=lambda spec: nullcontext(),  # type: ignore[arg-type,return-value]  # never asked
            **{"budget": 0.0, **options},
        )
    )


def _passed_over(record: CoverageRecord) -> list[str]:
    return [finding.message for finding in record.findings if finding.code == "COV023"]


def test_rows_that_can_be_read_answer(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    add_to_store(store, _known())
    text = store.read(store_path("simulated@cpu"))
    store.write(store_path("simulated@cpu"), text.replace(b'"rows": [', b'"rows": [{"op": 1},', 1))
    record = _measured(load_registry(store, "simulated@cpu"))
    (message,) = _passed_over(record)
    assert message.startswith("1 of ")
    assert "[E138]; it was passed over" in message
    assert {entry.status for entry in record.facts.ops} == {"native"}
    assert str(record.verdict) == "warn"


def test_random_bytes_hide_nothing_but_themselves(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for path in (store_path("simulated@cpu"), kind_rows.store_path("simulated@cpu")):
        store.write(path, bytes(range(256)))
    registry = load_registry(store, "simulated@cpu")
    kinds = kind_rows.load_kinds(store, "simulated@cpu")
    record = _measured(registry.overlaid(_known()), kind_rows=kinds)
    assert ["file of kinds" in message for message in _passed_over(record)] == [False, True]
    assert {entry.status for entry in record.facts.ops} == {"native"}


def test_broken_ways_around_hide_no_others(install: Install) -> None:
    module = "from day0_worker.workarounds import Workaround\n\nclass Way(Workaround):\n"
    install(
        {
            "absent": "module_that_is_not_there:Way",
            "malformed": "no reference",
            "raising": "raising_way:Way",
            "unsure": "unsure_way:Way",
            "cast": "raising_way:Other",
        },
        {
            "raising_way": module + "    def operators(self):\n        raise RuntimeError('no driver')\n",
            "unsure_way": module
            + "    def operators(self):\n        return {'aten.silu.default': None}\n\n"
            + "    def applies(self, call, config):\n        return config['absent']\n",
        },
    )
    record = _measured(_known("missing"))
    messages = _passed_over(record)
    assert len(messages) == 5
    for words in (
        "No module named 'module_that_is_not_there'",
        "not module:Class",
        "no driver",
        "KeyError",
        "'cast' is claimed twice",
    ):
        assert any(words in message for message in messages), words
    (gap,) = record.facts.gaps
    assert (gap.op, gap.status) == (SILU, "missing")


def test_without_a_gap_nobody_elses_code_is_asked(install: Install) -> None:
    install({"absent": "module_that_is_not_there:Way"}, {})
    assert _passed_over(_measured(_known())) == []

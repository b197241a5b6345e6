from __future__ import annotations

from pathlib import Path

import pytest

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import Device, TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint
from day0.adapters.targets.kept_description import described, environment_of

SPEC = TargetSpec.parse("eager@cpu/fp32")


class Asked:
    """Stands for the target itself."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> TargetDescription:
        self.times += 1
        return TargetDescription(
            api=1,
            capabilities=["op"],
            dtypes={"weights": ["fp32"]},
            devices=[Device(name="a processor")],
            fingerprint=Fingerprint(family="torch 2", exact={"torch": "2"}),
        )


def test_a_processor_is_asked_once(tmp_path: Path) -> None:
    store, ask = RunStore(tmp_path), Asked()
    first = described(SPEC, store, ask)
    assert described(SPEC, store, ask) == first
    assert ask.times == 1
    described(SPEC, store, ask, fresh=True)
    assert ask.times == 2
    described(SPEC, store, ask, command=["ssh", "host", "python"])
    assert ask.times == 3
    described(TargetSpec.parse("eager@cpu/bf16"), store, ask)
    assert ask.times == 4


def test_a_damaged_description_is_asked_again(tmp_path: Path) -> None:
    store, ask = RunStore(tmp_path), Asked()
    described(SPEC, store, ask)
    (name,) = store.list("targets")
    store.write(f"targets/{name}", b"{}")
    assert described(SPEC, store, ask).capabilities == ["op"]
    assert ask.times == 2


def test_what_may_change_it_makes_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = environment_of(SPEC)
    assert before
    assert environment_of(SPEC) == before
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    threads = environment_of(SPEC)
    assert threads != before
    installed = tmp_path / "new_package-1.dist-info"
    installed.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    more = environment_of(SPEC)
    assert more != threads
    (installed / "METADATA").write_text("Version: 2\n")
    assert environment_of(SPEC) != more


def test_other_devices_are_always_asked(tmp_path: Path) -> None:
    store, ask = RunStore(tmp_path), Asked()
    cuda = TargetSpec.parse("eager@cuda")
    assert environment_of(cuda) == ""
    described(cuda, store, ask)
    described(cuda, store, ask)
    assert ask.times == 2
    assert store.list("targets") == []

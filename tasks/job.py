"""What every stage's task is given: only names and settings, so that it can run on any machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target import TargetDescription
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint, Value

from .record import StageRecord
from .record_store import load_record, save_record
from .verdict import Verdict


class NumericsOptions(Value):
    """What numerics may be asked beyond the comparison itself.

    Attributes:
        prompts: which of the shipped prompts run: `auto`, `all` or names with commas.
        self_test: whether bugs are put in on purpose to see whether they are found.
        sweep: lower precisions to try on each role, short names with commas; empty: none.
        train: whether one step of training is compared.
        task: whether both sides answer the shipped items.
        samples: path of outputs that the release's publisher gives; empty: none.
        reference: path of a bundle that stands for the reference; empty: the reference itself runs.
        spread: how local comparisons are spread before the walk, e.g. `processes:4`; empty: the walk alone.
    """

    prompts: str = "auto"
    self_test: bool = False
    sweep: str = ""
    train: bool = False
    task: bool = False
    samples: str = ""
    reference: str = ""
    spread: str = ""


class RunOptions(Value):
    """Settings of one run that change what is computed.

    Attributes:
        probe_budget: seconds that coverage may spend on probing unknown operators.
        memory_limit: bytes (PSS of the worker's process tree) at which a worker is killed.
        node_timeout: seconds that one call to a worker may take.
        prompt: continued by reference and target.
        worker_command: argv of the worker's Python; empty: this Python.
        trust_remote_code: whether code of the release may run.
        fresh: whether stored results that touch the target are ignored.
        expected: whether inventory works out in a worker which tensors the config implies.
        verify: whether inventory reads every byte of the weights.
        layouts: that inventory tells memory per rank for, e.g. `tp=8,ep=8`; empty: the usual ones.
        numerics: what numerics does beyond its defaults.
    """

    probe_budget: float = 60.0
    memory_limit: int = 8 * 2**30
    node_timeout: float = 300.0
    prompt: str = "The capital of France is"
    worker_command: Sequence[str] = ()
    trust_remote_code: bool = False
    fresh: bool = False
    expected: bool = False
    verify: bool = False
    layouts: Sequence[str] = ()
    numerics: NumericsOptions = NumericsOptions()


class StageJob(Value):
    """One stage of one run on one target.

    Attributes:
        run: id of the run.
        store: root of the run store, a folder or URL.
        model: as named, without a revision.
        revision: pinned; None only for a folder or bare config.
        target: the target's text; empty for inventory and plan.
        fingerprint: of the target; None for inventory and plan.
        description: of the target, as it was asked before the stages; None: a stage has to ask itself.
        options: settings of the run.
    """

    run: str
    store: str
    model: str
    revision: str | None = None
    target: str = ""
    fingerprint: Fingerprint | None = None
    description: TargetDescription | None = None
    options: RunOptions = RunOptions()

    @property
    def run_store(self) -> RunStore:
        """The opened run store."""
        return RunStore(self.store)

    def log_path(self, stage: str) -> Path | None:
        """Where a stage's worker writes its log: beside the report; None where the store is no folder."""
        store = self.run_store
        name = f"{stage}-{TargetSpec.parse(self.target).slug}" if self.target else stage
        return Path(store.path(f"runs/{self.run}/logs/{name}.log")) if store.is_local else None


class RecordRef(Value):
    """A record by reference; what tasks hand on."""

    stage: str
    target: str
    key: str
    verdict: Verdict
    reused: bool


Record = TypeVar("Record", bound=StageRecord)


def reuse_or_run(
    job: StageJob, kind: type[Record], stage: str, key: str, compute: Callable[[], Record]
) -> RecordRef:
    """The stored record of that key or, where there is none, a new one, computed and stored.

    A `fresh` job computes every stage that has a target again, whatever is stored.
    """
    store = job.run_store
    record = None if (job.options.fresh and job.target) else load_record(store, kind, stage, key)
    reused = record is not None
    if record is None:
        record = compute().model_copy(update={"key": key, "target": job.target})
        save_record(store, record)
    return RecordRef(stage=stage, target=job.target, key=key, verdict=record.verdict, reused=reused)


def read_ref(job: StageJob, kind: type[Record], ref: RecordRef) -> Record:
    """The record a reference stands for.

    Raises:
        FileNotFoundError: it is no longer in the store.
    """
    record = load_record(job.run_store, kind, ref.stage, ref.key)
    if record is None:
        raise FileNotFoundError(f"record {ref.stage}/{ref.key} is not in the run store {job.store}")
    return record

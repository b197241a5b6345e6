"""The parent's side of a target: encodes calls and starts a fresh worker after a death."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from day0.adapters.base.errors import UnsupportedError, WorkerError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import (
    Answer,
    Call,
    CompileReport,
    Fragment,
    Generation,
    LoadReport,
    Observation,
    Paused,
    TargetDescription,
    TrainingStep,
)
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.worker import Worker

from .answers import as_answer, as_description, as_generation, as_load_report, as_paused, as_report
from .batch import ask_in_batches
from .observation import as_observation
from .sent_weights import SentWeights
from .training_step import as_training_step

if TYPE_CHECKING:
    from torch import Tensor


class WorkerTarget:
    """A target behind a worker; see `day0.adapters.base.target.Target` for what each method does.

    The worker starts with the first call. After it died the next call starts a fresh one, which knows
    nothing of prepared handles, kept weights, caches or loaded checkpoints.

    Args:
        spec: as the person named it.
        start: makes a started worker.
        timeout: seconds that one call may take.

    Attributes:
        spec: see above.
        timeout: see above; may be changed between calls.
        starts: how many workers were started so far.
    """

    def __init__(self, spec: TargetSpec, start: Callable[[], Worker], timeout: float) -> None:
        self.spec, self.timeout = spec, timeout
        self.starts = 0
        self._start = start
        self._worker: Worker | None = None
        self._description: TargetDescription | None = None
        self._weights = SentWeights(self._seen)
        self._peak = 0

    def __enter__(self) -> WorkerTarget:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Of the worker, while there is one."""
        return self._worker.pid if self._worker and self._worker.alive else None

    @property
    def worker_peak_bytes(self) -> int:
        """Highest memory (PSS) of any of this target's workers and all below it so far."""
        return max(self._peak, self._worker.peak_bytes if self._worker else 0)

    @property
    def log(self) -> Sequence[str]:
        """The last lines that the present or last worker wrote."""
        return self._worker.log.tail(200) if self._worker else ()

    def describe(self) -> TargetDescription:
        """See `Target`.

        Raises:
            WorkerError: E607, the answer is not a description, or speaks another version of the contract.
        """
        if self._description is None:
            result = self._ask("describe", {})[0]["result"]
            self._description = as_description(result, self.spec)
        return self._description

    def reset(self) -> None:
        """Ends the worker and forgets the description: the next call learns everything anew."""
        self.close()
        self._description = None

    def prepare(self, fragment: Fragment, example: Call, *, mode: str, weights: str = "lifted") -> str:
        """See `Target`."""
        self._need("fragment")
        request = {
            "fragment": self._described(fragment),
            "tree": example.tree,
            "mode": mode,
            "weights": weights,
        }
        return str(self._ask("prepare", request, example.tensors)[0]["result"].get("handle", ""))

    def _described(self, fragment: Fragment) -> dict[str, Any]:
        from day0_worker import trees

        return {
            "node": fragment.node,
            "kind": fragment.kind,
            "architecture": fragment.architecture,
            # Through JSON, so that keys are strings; as a tree, since real configs hold Infinity.
            "config": trees.encode(json.loads(json.dumps(dict(fragment.config))))[0],
            "dtype": fragment.dtype,
            "options": {**self.spec.options, **fragment.options},
            "varying": list(fragment.varying),
        }

    def run(
        self, handle: str, node: str, weights: Mapping[str, Any], inputs: Call, *, state: str | None = None
    ) -> Answer:
        """See `Target`."""
        self._need("fragment")
        tensors: dict[str, Tensor] = dict(inputs.tensors)
        sent = {name: self._weights.sent(expression, tensors) for name, expression in weights.items()}
        request = {
            "handle": handle,
            "node": node,
            "weights": sent or None,
            "tree": inputs.tree,
            "state": state,
        }
        return self._answer("run", request, tensors)

    def start(
        self,
        handle: str,
        node: str,
        weights: Mapping[str, Any],
        inputs: Call,
        *,
        pause: str,
        state: str | None = None,
    ) -> Answer | Paused:
        """See `Target`."""
        self._need("parts")
        tensors: dict[str, Tensor] = dict(inputs.tensors)
        sent = {name: self._weights.sent(expression, tensors) for name, expression in weights.items()}
        request = {
            "handle": handle,
            "node": node,
            "weights": sent or None,
            "tree": inputs.tree,
            "state": state,
            "pause": pause,
        }
        return self._answer_or_paused("run", request, tensors)

    def resume(self, key: str, output: Tensor) -> Answer | Paused:
        """See `Target`."""
        self._need("parts")
        request = {"key": key, "tree": {"$tensor": "output"}}
        return self._answer_or_paused("resume", request, {"output": output})

    def run_experts(
        self,
        handle: str,
        node: str,
        experts: str,
        weights: Mapping[str, Any],
        hidden: Tensor,
        ids: Tensor,
        chosen: Tensor,
    ) -> Answer:
        """See `Target`."""
        self._need("parts")
        tensors = {"hidden": hidden, "ids": ids, "chosen": chosen}
        request = {
            "handle": handle,
            "node": node,
            "experts": experts,
            "tree": [{"$tensor": name} for name in tensors],
            "weights": {name: self._weights.sent(value, tensors) for name, value in weights.items()},
        }
        return self._answer("run_experts", request, tensors)

    def drop(self, keys: Sequence[str] | None = None) -> None:
        """Ends runs that stand still; nothing happens where no worker lives."""
        if self._worker is not None and self._worker.alive:
            self._ask("drop", {"keys": None if keys is None else list(keys)})

    def observe(
        self,
        handle: str,
        node: str,
        weights: Mapping[str, Any],
        inputs: Call,
        *,
        state: str | None = None,
        limit: int,
    ) -> Observation:
        """See `Target`."""
        self._need("observe")
        tensors: dict[str, Tensor] = dict(inputs.tensors)
        sent = {name: self._weights.sent(expression, tensors) for name, expression in weights.items()}
        request = {
            "handle": handle,
            "node": node,
            "weights": sent or None,
            "tree": inputs.tree,
            "state": state,
            "limit": limit,
        }
        answer, blob = self._ask("observe", request, tensors)
        return as_observation(answer["result"], self._load("observe", blob))

    def report(self, handle: str) -> CompileReport:
        """See `Target`.

        Raises:
            WorkerError: E607, the answer is no report.
        """
        self._need("fragment")
        return as_report(self._ask("report", {"handle": handle})[0]["result"], self.spec)

    def forget(self, state: str) -> None:
        """Drops the caches of a sequence; nothing happens where no worker lives."""
        if self._worker is not None and self._worker.alive:
            self._ask("forget", {"state": state})

    def run_op(self, call: OperatorCall, tensors: Sequence[Tensor]) -> Answer:
        """See `Target`."""
        self._need("op")
        request = {"call": call.model_dump(mode="json"), "tensors": len(tensors)}
        return self._answer("run_op", request, {f"t{index}": tensor for index, tensor in enumerate(tensors)})

    def run_ops(
        self, calls: Sequence[OperatorCall], tensors: Sequence[Sequence[Tensor]]
    ) -> Sequence[Answer | WorkerError]:
        """See `Target`."""
        self._need("op")

        def many(places: Sequence[int]) -> Mapping[int, Answer | WorkerError]:
            answers = self._many([calls[at] for at in places], [tensors[at] for at in places])
            return dict(zip(places, answers, strict=True))

        return ask_in_batches(
            len(calls), many, lambda place: self.run_op(calls[place], tensors[place]), lambda: self.log
        )

    def load(self, folder: str, *, dtype: str) -> LoadReport:
        """See `Target`.

        Raises:
            WorkerError: E608, the worker does not see the folder's files.
        """
        self._need("model")
        path = Path(folder).resolve()
        hidden = [
            str(file) for file in sorted(path.glob("*.safetensors")) if not self._weights.sees(str(file))
        ]
        if hidden:
            raise WorkerError(
                f"the worker of {self.spec} does not see {hidden[0]}",
                code="E608",
                remedy="Mount the folder there under the same path.",
            )
        return as_load_report(self._ask("load", {"folder": str(path), "dtype": dtype})[0])

    def train(self, fragment: Fragment, weights: Mapping[str, Any], step: Mapping[str, Any]) -> TrainingStep:
        """See `Target`."""
        self._need("grad")
        tensors: dict[str, Tensor] = {}
        sent = {name: self._weights.sent(expression, tensors) for name, expression in weights.items()}
        request = {"fragment": self._described(fragment), "weights": sent, **step}
        _, blob = self._ask("train", request, tensors)
        return as_training_step(self._load("train", blob), self.spec)

    def score(self, tokens: Sequence[Sequence[int]]) -> Answer:
        """See `Target`."""
        self._need("model")
        return self._answer("score", {"tokens": [list(row) for row in tokens]})

    def generate(self, tokens: Sequence[Sequence[int]], *, new_tokens: int) -> Generation:
        """See `Target`."""
        self._need("generate")
        request = {"tokens": [list(row) for row in tokens], "new_tokens": new_tokens}
        return as_generation(self._ask("generate", request)[0], self.spec)

    def launch(self, world_size: int, job: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """See `Target`; jobs and what a rank answers are in `day0_worker.ranks`."""
        self._need("collectives")
        ranks = self._ask("launch", {"world_size": world_size, "job": dict(job)})[0]["result"].get("ranks")
        if not (isinstance(ranks, list) and all(isinstance(rank, dict) for rank in ranks)):
            raise WorkerError(f"{self.spec} answered launch without its ranks", code="E607")
        return ranks

    def close(self) -> None:
        """See `Target`."""
        if self._worker is not None:
            self._worker.close()
            self._peak = max(self._peak, self._worker.peak_bytes)

    def _seen(self, files: Sequence[Mapping[str, Any]]) -> Collection[str]:
        seen: Collection[str] = self._ask("sees", {"files": list(files)})[0]["result"].get("seen", ())
        return seen

    def _need(self, capability: str) -> None:
        offered = self.describe().capabilities
        if capability not in offered:
            raise UnsupportedError(
                f"{self.spec} does not claim to do {capability!r}, only {', '.join(offered) or 'nothing'}",
                code="E501",
            )

    def _ask(
        self,
        verb: str,
        request: Mapping[str, Any],
        tensors: Mapping[str, Tensor] | None = None,
        *,
        steps: int = 1,
    ) -> tuple[dict[str, Any], bytearray]:
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = self._start()
            self._weights.forget()
            self.starts += 1
        return self._worker.call(verb, request, tensors, timeout=self.timeout * steps)

    def _answer(
        self, verb: str, request: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
    ) -> Answer:
        answer, blob = self._ask(verb, request, tensors)
        return as_answer(answer, Call(answer["result"].get("tree"), self._load(verb, blob)))

    def _answer_or_paused(
        self, verb: str, request: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> Answer | Paused:
        answer, blob = self._ask(verb, request, tensors)
        outputs = Call(answer["result"].get("tree"), self._load(verb, blob))
        key = answer["result"].get("paused")
        if key is None:
            return as_answer(answer, outputs)
        return as_paused(key, outputs, as_answer(answer, Call(None, {})), self.spec)

    def _many(
        self, calls: Sequence[OperatorCall], tensors: Sequence[Sequence[Tensor]]
    ) -> list[Answer | WorkerError]:
        request = {
            "calls": [call.model_dump(mode="json") for call in calls],
            "tensors": [len(inputs) for inputs in tensors],
            "patience": self.timeout,
        }
        sent = {
            f"c{place}.t{index}": tensor
            for place, inputs in enumerate(tensors)
            for index, tensor in enumerate(inputs)
        }
        # The worker itself ends a step that takes longer than the time limit.
        answer, blob = self._ask("run_ops", request, sent, steps=len(calls) + 1)
        entries, outputs = answer["result"].get("answers"), self._load("run_ops", blob)
        if not (isinstance(entries, list) and len(entries) == len(calls)):
            raise WorkerError(f"{self.spec} did not answer each of {len(calls)} operators", code="E607")
        return [self._entry(place, entry, outputs) for place, entry in enumerate(entries)]

    def _entry(
        self, place: int, entry: Mapping[str, Any], outputs: Mapping[str, Tensor]
    ) -> Answer | WorkerError:
        assert self._worker is not None, "whoever answered is there"
        if "error" in entry:
            return self._worker.remote_error("run_ops", entry["error"])
        prefix = f"c{place}."
        own = {name[len(prefix) :]: value for name, value in outputs.items() if name.startswith(prefix)}
        return as_answer(entry, Call(entry.get("tree"), own))

    def _load(self, verb: str, blob: bytearray) -> dict[str, Tensor]:
        from day0_worker.blobs import load
        from day0_worker.frames import FrameError

        try:
            return load(blob)
        except FrameError as error:
            raise WorkerError(
                f"{self.spec} answered {verb} with broken tensors: {error}", code="E606"
            ) from error

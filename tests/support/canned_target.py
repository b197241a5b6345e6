"""A target that gives canned answers, for verdicts that a healthy machine never needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.errors import UnsupportedError
from day0.adapters.base.operator_call import OperatorCall
from day0.adapters.base.target import (
    Answer,
    Call,
    Device,
    Fragment,
    Generation,
    LoadReport,
    TargetDescription,
)
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Fingerprint

Job = Mapping[str, Any]


def finished_rank(rank: int, world: int, job: Job) -> dict[str, Any]:
    """What a healthy rank answers to a job: every check passed, 1 ms a sample."""
    common = {"passed": True, "detail": "", "seconds": [0.001] * 3}
    if job["job"] == "compute":
        checks = [
            {**common, "name": f"{case['operation']} {case['dtype']}", "operation": case["operation"],
             "flops": 1_000_000 if case["operation"] == "gemm" else 0, "repeatable": True}
            for case in job["cases"]
        ]  # fmt: skip
    else:
        checks = [
            {**common, "name": f"{operation} {dtype} {elements}", "operation": operation, "dtype": dtype,
             "elements": elements, "bytes": elements * 2}
            for operation in ("all_reduce", "all_to_all_uneven")
            for dtype in job["dtypes"]
            for elements in job["elements"]
        ]  # fmt: skip
    return {"rank": rank, "outcome": "finished", "detail": "", "device": "cpu", "checks": checks}


@dataclass
class CannedTarget:
    """Answers `launch`, `load` and `generate` as told; each may also raise.

    Attributes:
        spec: see `Target`.
        capabilities: that it claims.
        devices: number of them.
        on_launch: (world, job) -> ranks' answers.
        on_generate: (tokens, new tokens) -> generation.
        launched: worlds and jobs so far.
        generated: batch and length so far.
    """

    spec: TargetSpec = field(default_factory=lambda: TargetSpec.parse("canned@cpu/bf16"))
    capabilities: Sequence[str] = ("op", "model", "generate", "collectives")
    devices: int = 1
    on_launch: Callable[[int, Job], Sequence[Mapping[str, Any]]] | None = None
    on_generate: Callable[[Sequence[Sequence[int]], int], Generation] | None = None
    weight_bytes: int = 0
    timeout: float = 10.0
    launched: list[tuple[int, Job]] = field(default_factory=list)
    generated: list[tuple[int, int]] = field(default_factory=list)

    def describe(self) -> TargetDescription:
        return TargetDescription(
            api=1,
            capabilities=self.capabilities,
            dtypes={"weights": ["bf16"], "activations": ["bf16"], "collectives": ["bf16", "fp32"]},
            devices=[Device(name="canned", memory_bytes=2**33)] * self.devices,
            fingerprint=Fingerprint(family="canned 1.0", exact={"canned": "1.0"}),
        )

    def launch(self, world_size: int, job: Job) -> Sequence[Mapping[str, Any]]:
        self.launched.append((world_size, job))
        if self.on_launch is not None:
            return self.on_launch(world_size, job)
        return [finished_rank(rank, world_size, job) for rank in range(world_size)]

    def load(self, folder: str, *, dtype: str) -> LoadReport:
        self._need("model")
        return LoadReport((), (), (), 0.1, self.weight_bytes)

    def generate(self, tokens: Sequence[Sequence[int]], *, new_tokens: int) -> Generation:
        self._need("generate")
        self.generated.append((len(tokens), len(tokens[0])))
        if self.on_generate is not None:
            return self.on_generate(tokens, new_tokens)
        return Generation([[1] * new_tokens] * len(tokens), 0.01, 0.08, 2**20)

    def prepare(self, fragment: Fragment, example: Call, *, mode: str, weights: str = "lifted") -> str:
        raise UnsupportedError("canned")

    def run(self, handle: str, node: str, weights: Any, inputs: Call, *, state: str | None = None) -> Answer:
        raise UnsupportedError("canned")

    def report(self, handle: str) -> Any:
        raise UnsupportedError("it compiles nothing")

    def run_ops(self, *_: Any) -> Any:
        raise NotImplementedError

    def run_op(self, call: OperatorCall, tensors: Sequence[Any]) -> Answer:
        raise UnsupportedError("canned")

    def score(self, tokens: Sequence[Sequence[int]]) -> Answer:
        raise UnsupportedError("canned")

    def close(self) -> None:
        """There is nothing to end."""

    def _need(self, capability: str) -> None:
        if capability not in self.capabilities:
            raise UnsupportedError(f"canned does not claim to do {capability!r}")

"""Eager torch with one fault: `?fault=NAME[&layer=NODE][&op=NAME][&verb=run][&factor=1.01][&rank=1]`.

The fault shows in the verb (`run` unless told otherwise), and with `layer` in that node or `op` in
that operator only; everything else is right.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from day0.adapters.targets.eager import EagerStack
from day0_worker import NodeRun, StackError

from .actions import ACTIONS

MESSAGES = {
    "missing_operator": "Could not run 'aten::silu.out' with arguments from the 'Faulty' backend.",
    "dtype": "\"addmm_impl_cpu_\" not implemented for 'Half'",
    "shape": "The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 1",
    "memory": "Faulty out of memory. Tried to allocate 20.00 GiB",
}


class FaultyStack(EagerStack):
    name = "faulty"

    def describe(self) -> dict[str, Any]:
        said: dict[str, Any] = self._with_fault("describe", super().describe)
        return said

    def run(self, job: NodeRun) -> Any:
        if self.options.get("layer", job.node) != job.node:
            return super().run(job)
        return self._with_fault("run", lambda: super(FaultyStack, self).run(job))

    def run_op(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.options.get("op", op) != op:
            return super().run_op(op, args, kwargs)
        return self._with_fault("run_op", lambda: super(FaultyStack, self).run_op(op, args, kwargs))

    def load(self, folder: str, dtype: str) -> dict[str, Any]:
        report: dict[str, Any] = self._with_fault(
            "load", lambda: super(FaultyStack, self).load(folder, dtype)
        )
        return report

    def generate(self, tokens: list[list[int]], new_tokens: int) -> dict[str, Any]:
        right = super().generate
        made: dict[str, Any] = self._with_fault("generate", lambda: right(tokens, new_tokens))
        return made

    def launch(self, world_size: int, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The job may name the fault of a rank: `rank_dies`, `rank_hangs`, `rank_lies`."""
        self.options.update({key: str(job[key]) for key in ("fault", "rank") if key in job})
        return super().launch(world_size, job)

    def join(self, rank: int, world_size: int) -> str:
        fault = self.options.get("fault", "")
        if rank == int(self.options.get("rank", 0)) and fault in ("rank_dies", "rank_hangs", "rank_lies"):
            at_broadcast(fault)
        return super().join(rank, world_size)

    def _with_fault(self, verb: str, work: Callable[[], Any]) -> Any:
        fault = self.options.get("fault", "")
        if self.options.get("verb", "run") != verb or not fault:
            return work()
        if fault in MESSAGES:
            raise RuntimeError(MESSAGES[fault])
        if fault in ACTIONS:
            ACTIONS[fault]()
            return work()
        if fault in CHANGES:
            return CHANGES[fault](work(), self.options)
        if fault.startswith("rank_"):
            return work()
        raise StackError(f"the faulty stack knows no fault {fault!r}")


def at_broadcast(fault: str) -> None:
    """The rank works up to its first broadcast; one that hangs does so on the way there."""
    import torch.distributed as dist

    right, right_all_reduce = dist.broadcast, dist.all_reduce

    def broadcast(tensor: torch.Tensor, src: int) -> None:
        if fault == "rank_dies":
            os.kill(os.getpid(), 9)
        right(tensor, src=src)
        tensor[0] += 1

    def all_reduce(tensor: torch.Tensor) -> None:
        right_all_reduce(tensor)
        if fault == "rank_hangs":
            time.sleep(3600)

    vars(dist).update(broadcast=broadcast, all_reduce=all_reduce)


Change = Callable[[torch.Tensor, Mapping[str, str]], torch.Tensor]


def changed(change: Change) -> Callable[[Any, Mapping[str, str]], Any]:
    def apply(value: Any, options: Mapping[str, str]) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value, options)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            return type(value)([change(value[0], options), *value[1:]])
        return value

    return apply


def with_nan(tensor: torch.Tensor, options: Mapping[str, str]) -> torch.Tensor:
    tensor = tensor.clone()
    if tensor.is_floating_point():
        tensor.view(-1)[0] = float("nan")
    return tensor


CHANGES = {
    "scale": changed(lambda tensor, options: tensor * float(options.get("factor", "1.01"))),
    "nan": changed(with_nan),
    "wrong_shape": changed(lambda tensor, options: tensor[..., :-1]),
}

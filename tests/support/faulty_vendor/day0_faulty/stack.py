"""Eager torch with one fault: `?fault=NAME[&layer=NODE][&verb=run][&factor=1.01][&rank=1]`.

The fault shows in the verb (`run` unless told otherwise), and with `layer` in that node only; everything
else is right.
"""

import os
import time

import torch
from day0.adapters.targets.eager import EagerStack

from day0_faulty.actions import ACTIONS
from day0_worker import StackError

MESSAGES = {
    "missing_operator": "Could not run 'aten::silu.out' with arguments from the 'Faulty' backend.",
    "dtype": "\"addmm_impl_cpu_\" not implemented for 'Half'",
    "shape": "The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 1",
    "memory": "Faulty out of memory. Tried to allocate 20.00 GiB",
}


class FaultyStack(EagerStack):
    name = "faulty"

    def describe(self):
        return self._with_fault("describe", super().describe)

    def run(self, job):
        if self.options.get("layer", job.node) != job.node:
            return super().run(job)
        return self._with_fault("run", lambda: super(FaultyStack, self).run(job))

    def run_op(self, op, args, kwargs):
        return self._with_fault("run_op", lambda: super(FaultyStack, self).run_op(op, args, kwargs))

    def load(self, folder, dtype):
        return self._with_fault("load", lambda: super(FaultyStack, self).load(folder, dtype))

    def generate(self, tokens, new_tokens):
        return self._with_fault("generate", lambda: super(FaultyStack, self).generate(tokens, new_tokens))

    def launch(self, world_size, job):
        """The job may name the fault of a rank: `rank_dies`, `rank_hangs`, `rank_lies`."""
        self.options.update({key: str(job[key]) for key in ("fault", "rank") if key in job})
        return super().launch(world_size, job)

    def join(self, rank, world_size):
        fault = self.options.get("fault", "")
        if rank == int(self.options.get("rank", 0)) and fault in ("rank_dies", "rank_hangs", "rank_lies"):
            at_broadcast(fault)
        return super().join(rank, world_size)

    def _with_fault(self, verb, work):
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


def at_broadcast(fault):
    """The rank works up to its first broadcast; one that hangs does so on the way there."""
    import torch.distributed as dist

    right, right_all_reduce = dist.broadcast, dist.all_reduce

    def broadcast(tensor, src):
        if fault == "rank_dies":
            os.kill(os.getpid(), 9)
        right(tensor, src=src)
        tensor[0] += 1

    def all_reduce(tensor):
        right_all_reduce(tensor)
        if fault == "rank_hangs":
            time.sleep(3600)

    dist.broadcast, dist.all_reduce = broadcast, all_reduce


def changed(change):
    def apply(value, options):
        if isinstance(value, torch.Tensor):
            return change(value, options)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            return type(value)([change(value[0], options), *value[1:]])
        return value

    return apply


def with_nan(tensor, options):
    tensor = tensor.clone()
    if tensor.is_floating_point():
        tensor.view(-1)[0] = float("nan")
    return tensor


CHANGES = {
    "scale": changed(lambda tensor, options: tensor * float(options.get("factor", "1.01"))),
    "nan": changed(with_nan),
    "wrong_shape": changed(lambda tensor, options: tensor[..., :-1]),
}

"""Eager torch with one fault: `?fault=NAME[&layer=NODE][&verb=run][&factor=1.01][&rank=1]`.

The fault shows in the verb (`run` unless told otherwise), and with `layer` in that node only; everything
else is right.
"""

import ctypes
import os
import subprocess
import sys
import time

import torch
from day0.adapters.targets.eager import EagerStack
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
    """The rank works up to its first broadcast."""
    import torch.distributed as dist

    right = dist.broadcast

    def broadcast(tensor, src):
        if fault == "rank_dies":
            os.kill(os.getpid(), 9)
        if fault == "rank_hangs":
            time.sleep(3600)
        right(tensor, src=src)
        tensor[0] += 1

    dist.broadcast = broadcast


def segfault():
    ctypes.string_at(0)


def hang():
    time.sleep(3600)


def hang_holding_the_lock():
    ctypes.PyDLL(None).sleep(3600)


def take_all_memory():
    taken = []
    while True:
        taken.append(bytearray(os.urandom(2**20) * 16))
        time.sleep(0.01)


def leave():
    sys.exit(3)


def chatter():
    print("a stack that prints to standard output")
    os.write(1, b"and past Python, too\n")
    sys.stdin.read()


def write_on_the_pipe(data):
    for number in os.listdir("/proc/self/fd"):
        if int(number) > 2 and os.path.exists(f"/proc/self/fd/{number}"):
            try:
                os.write(int(number), data)
            except OSError:
                continue


def escape():
    """Leaves a process behind in a session of its own."""
    subprocess.Popen(["sleep", "3600"], start_new_session=True, stdin=subprocess.DEVNULL)


def many_lines():
    for number in range(100_000):
        print(f"line {number} " + "x" * 50, file=sys.stderr)


ACTIONS = {
    "segfault": segfault,
    "hang": hang,
    "hang_holding_the_lock": hang_holding_the_lock,
    "oom": take_all_memory,
    "exit": leave,
    "print": chatter,
    "garbage": lambda: write_on_the_pipe(b"HTTP/1.1 200 OK\r\n\r\nnothing that a parent expects"),
    "half": lambda: (write_on_the_pipe((1000).to_bytes(8, "big") + b'{"id": 1, "res'), os._exit(0)),
    "huge": lambda: write_on_the_pipe((2**60).to_bytes(8, "big")),
    "escape": escape,
    "many_lines": many_lines,
}


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

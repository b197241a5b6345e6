"""Faults that need no torch: what they do to the process they run in."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def segfault() -> None:
    ctypes.string_at(0)


def hang() -> None:
    time.sleep(3600)


def hang_holding_the_lock() -> None:
    ctypes.PyDLL(None).sleep(3600)


def take_all_memory() -> None:
    taken: list[bytearray] = []
    while True:
        taken.append(bytearray(os.urandom(2**20) * 16))
        time.sleep(0.01)


def leave() -> None:
    sys.exit(3)


def chatter() -> None:
    print("a stack that prints to standard output")
    os.write(1, b"and past Python, too\n")
    sys.stdin.read()


def write_on_the_pipe(data: bytes) -> None:
    for number in os.listdir("/proc/self/fd"):
        if int(number) > 2 and os.path.exists(f"/proc/self/fd/{number}"):
            try:
                os.write(int(number), data)
            except OSError:
                continue


def half() -> None:
    write_on_the_pipe((1000).to_bytes(8, "big") + b'{"id": 1, "res')
    os._exit(0)


def escape() -> None:
    """Leaves a process behind in a session of its own."""
    subprocess.Popen(["sleep", "3600"], start_new_session=True, stdin=subprocess.DEVNULL)


def own_group() -> None:
    """Leaves a process behind in a process group of its own, in the worker's session."""
    subprocess.Popen(["sleep", "3600"], process_group=0, stdin=subprocess.DEVNULL)


def many_lines() -> None:
    for number in range(100_000):
        print(f"line {number} " + "x" * 50, file=sys.stderr)


ACTIONS: dict[str, Callable[[], Any]] = {
    "segfault": segfault,
    "hang": hang,
    "hang_holding_the_lock": hang_holding_the_lock,
    "oom": take_all_memory,
    "exit": leave,
    "print": chatter,
    "garbage": lambda: write_on_the_pipe(b"HTTP/1.1 200 OK\r\n\r\nnothing that a parent expects"),
    "half": half,
    "huge": lambda: write_on_the_pipe((2**60).to_bytes(8, "big")),
    "escape": escape,
    "own_group": own_group,
    "many_lines": many_lines,
}

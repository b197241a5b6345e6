"""Real OpenAI-compatible servers on loopback, started for a test and ended after it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

_START_SECONDS = 240.0  # imports of torch and transformers on two busy cores, then the model


@contextmanager
def transformers_server(folder: Path) -> Iterator[str]:
    """`transformers serve` with one model; yields its address."""
    script = Path(sys.executable).with_name("transformers")
    with _served([str(script), "serve", "--host", "127.0.0.1", "--device", "cpu", str(folder)]) as url:
        yield url


@contextmanager
def llama_cpp_server(gguf: Path, name: str) -> Iterator[str]:
    """llama.cpp's Python server, which keeps the logits of the prompt; yields its address."""
    command = [
        sys.executable, "-m", "llama_cpp.server", "--model", str(gguf), "--model_alias", name,
        "--logits_all", "True", "--n_ctx", "512", "--n_threads", "2", "--host", "127.0.0.1",
    ]  # fmt: skip
    with _served(command) as url:
        yield url


@contextmanager
def _served(command: Sequence[str]) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(process, url)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            if httpx.get(f"{url}/models", timeout=5).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise RuntimeError("the server did not come up")

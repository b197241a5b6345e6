"""Runs the services of docker-compose.yml as plain processes: same commands, own ports and folders."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SECRETS = {"DAY0_DATABASE_PASSWORD": "pg-secret", "DAY0_PREFECT_AUTH": "ada:prefect-secret"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(true: Callable[[], bool], what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(0.5)


class NativeServices:
    """The services, each in a process group of its own; `close` ends them all.

    Args:
        folder: for data, logs and the run store.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "store").mkdir()  # as the Dockerfile does
        self.services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.ports = {name: free_port() for name in ("5432", "4200", "8080", "8088")}
        self._running: list[subprocess.Popen[bytes]] = []

    def translate(self, text: str) -> str:
        """Hosts, ports, folders and secrets of the containers as they are here."""
        text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: SECRETS[match[1]], text)
        text = re.sub(r"\b(db|server)(?=:\d)", "127.0.0.1", text).replace("0.0.0.0", "127.0.0.1")
        for inside, here in self.ports.items():
            text = re.sub(rf"\b{inside}\b", str(here), text)
        return text.replace("/var/lib/day0", str(self.folder))

    def environment(self, name: str) -> dict[str, str]:
        """What the service's processes see: its own variables over this process's, its Prefect home apart."""
        given: Mapping[str, Any] = self.services[name].get("environment", {})
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PREFECT_HOME": str(self.folder / f"prefect-{name}"),
            **{key: self.translate(str(value)) for key, value in given.items()},
        }

    def command(self, name: str) -> list[str]:
        return [self.translate(word) for word in self.services[name]["command"]]

    def run(self, name: str, command: Sequence[str] | None = None) -> str:
        """Runs a one-shot, or another command in the service's environment, to its end."""
        done = subprocess.run(
            command or self.command(name),
            cwd=ROOT,
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, name: str, command: Sequence[str] | None = None) -> None:
        """Starts what stays up, and waits until its health check passes."""
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                command or self.command(name),
                cwd=ROOT,
                env=self.environment(name),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)

        def healthy() -> bool:
            assert process.poll() is None, (self.folder / f"{name}.log").read_text()[-2000:]
            return (
                subprocess.run(self._check(name), env=self.environment(name), capture_output=True).returncode
                == 0
            )

        wait_for(healthy, f"health of {name}")

    def _check(self, name: str) -> list[str]:
        kind, *words = self.services[name]["healthcheck"]["test"]
        if kind == "CMD-SHELL":
            program, *rest = self.translate(words[0]).split()
            return [
                str(postgres_binaries() / program),
                "--host=127.0.0.1",
                f"--port={self.ports['5432']}",
                *rest,
            ]
        return [sys.executable if word == "python" else self.translate(word) for word in words]

    def start_database(self) -> None:
        """What the image of PostgreSQL does at its first start: a cluster, its owner, its database."""
        data, password = self.folder / "database", self.folder / "password"
        values = self.environment("db")
        password.write_text(values["POSTGRES_PASSWORD"])
        data.mkdir()
        binaries = postgres_binaries()
        as_owner: list[str] = []
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            for place in (data, password):
                shutil.chown(place, "postgres", "postgres")
            for parent in (self.folder, *self.folder.parents):
                if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
                    parent.chmod(0o755)
            as_owner = ["runuser", "-u", "postgres", "--"]
        user, name, port = values["POSTGRES_USER"], values["POSTGRES_DB"], str(self.ports["5432"])
        make = [
            binaries / "initdb",
            "-D",
            data,
            f"--username={user}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
        ]
        subprocess.run([*as_owner, *map(str, make)], check=True, capture_output=True)
        serve = [binaries / "postgres", "-D", data, "-p", port, "-h", "127.0.0.1", "-k", data]
        self.start("db", [*as_owner, *map(str, serve)])
        subprocess.run(
            [binaries / "createdb", "-h", "127.0.0.1", "-p", port, "-U", user, name],
            env={**values, "PGPASSWORD": values["POSTGRES_PASSWORD"]},
            check=True,
        )

    def close(self) -> None:
        """Ends all services, the last one first."""
        for process in reversed(self._running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def postgres_binaries() -> Path:
    """Where Debian's packages put them.

    Raises:
        FileNotFoundError: PostgreSQL is not installed.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise FileNotFoundError(
            "no PostgreSQL below /usr/lib/postgresql; install Debian's package postgresql"
        )
    return found[-1].parent

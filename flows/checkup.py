"""What `day0 doctor` looks at, each as one line with a verdict; targets are asked through their workers."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.run_store import RunStore
from day0.adapters.base.target_spec import TargetSpec
from day0.adapters.base.values import Value
from day0.reports.environment import describe_environment
from day0.reports.words import bytes_text
from day0.tasks.verdict import Verdict

from .prefect_setup import find_prefect
from .settings import Settings

# The demo's checkpoint, records and report take 0.6 GB (measured); a person's first own model takes more.
_SMALL_DISK = 2 * 10**9
_HEALTH_SECONDS = 5.0
_ASK_SECONDS = 120.0


class Checked(Value):
    """One thing looked at.

    Attributes:
        subject: what, e.g. `target eager@cpu`.
        verdict: `pass`, `warn` or `fail`.
        detail: one line.
    """

    subject: str
    verdict: Verdict
    detail: str


def check_up(settings: Settings, targets: Sequence[str]) -> list[Checked]:
    """Looks at versions, store, disk, Prefect and targets.

    Args:
        settings: in force.
        targets: to ask; empty: every installed stack on the CPU.
    """
    from day0.adapters.targets.registry import stacks

    asked = list(targets) or [f"{name}@cpu" for name in sorted(stacks())]
    with ThreadPoolExecutor(max_workers=max(len(asked), 1)) as pool:
        answers = pool.map(lambda target: _target(settings, target), asked)
        return [*_versions(), *_store(settings.store), _prefect(), *answers]


def _versions() -> list[Checked]:
    found = describe_environment()
    packages = found["packages"]
    told = ", ".join(f"{name} {version}" for name, version in packages.items())
    machine = f"{found['system']}, {found['cores']} cores, {bytes_text(found['memory_bytes'])}"
    return [
        Checked(subject="machine", verdict=Verdict.PASS, detail=f"{machine}, Python {found['python']}"),
        Checked(subject="packages", verdict=Verdict.PASS, detail=told),
    ]


def _store(root: str) -> list[Checked]:
    try:
        store = RunStore(root)
        name = f"doctor-{uuid.uuid4().hex}"
        store.write(name, b"")
        store.remove(name)
    except (Day0Error, OSError) as error:
        return [
            Checked(subject="run store", verdict=Verdict.FAIL, detail=f"{root} cannot be written: {error}")
        ]
    checked = [Checked(subject="run store", verdict=Verdict.PASS, detail=f"{store.path('.')} can be written")]
    if store.is_local:
        free = shutil.disk_usage(Path(store.path("."))).free
        verdict = Verdict.PASS if free >= _SMALL_DISK else Verdict.WARN
        checked.append(Checked(subject="disk", verdict=verdict, detail=f"{bytes_text(free)} free"))
    return checked


def _prefect() -> Checked:
    place = find_prefect()
    profile = f", profile {place.profile}" if place.profile else ""
    if not place.api_url:
        return Checked(
            subject="prefect",
            verdict=Verdict.PASS,
            detail=f"embedded server in {place.home}{profile}; the first start takes about 25 s",
        )
    import httpx

    where = f"server {place.api_url} (from {place.origin}){profile}"
    try:
        answer = httpx.get(f"{place.api_url.rstrip('/')}/health", timeout=_HEALTH_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Checked(subject="prefect", verdict=Verdict.FAIL, detail=f"{where} does not answer: {error}")
    verdict = Verdict.PASS if answer.is_success else Verdict.FAIL
    return Checked(subject="prefect", verdict=verdict, detail=f"{where} answers {answer.status_code}")


def _target(settings: Settings, target: str) -> Checked:
    from day0.adapters.targets.open import open_target

    subject = f"target {target}"
    try:
        with open_target(
            TargetSpec.parse(target),
            timeout=min(settings.timeout, _ASK_SECONDS),
            memory_limit=int(settings.memory),
            command=settings.worker_command,
        ) as opened:
            description = opened.describe()
    except Day0Error as error:
        return Checked(subject=subject, verdict=Verdict.WARN, detail=str(error))
    devices = ", ".join(device.name for device in description.devices)
    return Checked(
        subject=subject,
        verdict=Verdict.PASS,
        detail=f"{description.fingerprint.family}; {devices}; can {', '.join(description.capabilities)}",
    )

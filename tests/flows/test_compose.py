from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ONE_SHOTS = {"migrate": "service_completed_successfully", "deploy": "service_completed_successfully"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


def test_every_service_is_there_and_pinned(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"db", "migrate", "server", "deploy", "worker", "site"}
    for name, service in compose["services"].items():
        image, _, tag = service["image"].partition(":")
        assert image, name
        assert re.match(r"\d+\.\d+", tag), name


def test_what_stays_up_is_checked_and_awaited(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert ("healthcheck" in service) == (name not in ONE_SHOTS), name
        for other, awaited in service.get("depends_on", {}).items():
            assert awaited["condition"] == ONE_SHOTS.get(other, "service_healthy"), (name, other)
    assert set(compose["services"]["server"]["depends_on"]) == {"db", "migrate"}


def test_nothing_listens_beyond_this_machine(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_secrets_come_from_the_environment_file(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    assert asked == {"DAY0_DATABASE_PASSWORD", "DAY0_PREFECT_AUTH"}
    assert not re.search(r"\$\{\w+\}", text)
    example = dict(
        line.split("=", 1)
        for line in (ROOT / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert example == dict.fromkeys(asked, "")


def test_the_deployments_are_portable() -> None:
    deployed = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    assert deployed["pull"] == []
    by_name = {each["name"]: each for each in deployed["deployments"]}
    assert {name: each["entrypoint"] for name, each in by_name.items()} == {
        "adapt": "day0.flows.adapt.adapt",
        "regress": "day0.flows.regress.regress",
    }
    (schedule,) = by_name["regress"]["schedules"]
    assert re.fullmatch(r"(\S+ ){4}\S+", schedule["cron"])
    assert set(schedule["parameters"]) == {"model", "targets"}
    assert all(each["work_pool"]["name"] == "day0" for each in by_name.values())
    assert not re.search(r"(^|\s)/(?!var/lib)\w+/", (ROOT / "prefect.yaml").read_text())

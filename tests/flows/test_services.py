from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.native_services import SECRETS, NativeServices, wait_for

pytestmark = pytest.mark.slow

USER, _, PASSWORD = SECRETS["DAY0_PREFECT_AUTH"].partition(":")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[NativeServices]:
    made = NativeServices(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_every_command_of_the_compose_file_runs_and_adapt_is_green_on_the_server(
    services: NativeServices, tiny_checkpoint: Callable[[str], Path]
) -> None:
    services.start_database()
    services.run("migrate")
    services.start("server")
    services.run("deploy")
    services.start("worker")
    services.start("site")
    api = httpx.Client(
        base_url=f"http://127.0.0.1:{services.ports['4200']}/api", auth=(USER, PASSWORD), timeout=30
    )
    assert httpx.get(f"{api.base_url}flows/count").status_code == 401

    model, targets = str(tiny_checkpoint("llama")), ["eager@cpu/fp32"]
    words = ["-p", f"model={model}", "-p", f"targets={json.dumps(targets)}"]
    services.run("deploy", ["prefect", "deployment", "run", "adapt/adapt", *words])

    run: dict[str, Any] = {}

    def ended() -> bool:
        answer = api.post("/flow_runs/filter", json={"flows": {"name": {"any_": ["adapt"]}}})
        assert answer.status_code == 200, answer.text
        run.update(answer.json()[0])
        return run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

    wait_for(ended, "the end of the flow run", 600)
    assert run["state_type"] == "COMPLETED", (services.folder / "worker.log").read_text()[-3000:]

    artifacts = api.post("/artifacts/filter", json={}).json()
    keys = {artifact["key"] for artifact in artifacts}
    stages = {f"{stage}-eager-cpu-fp32" for stage in ("coverage", "minimal", "numerics", "scale")}
    assert keys >= stages | {"inventory", "plan", "day0-verdict", "day0-report"}
    (link,) = [artifact["description"] for artifact in artifacts if artifact["key"] == "day0-report"]
    page = httpx.get(link)
    assert page.status_code == 200
    assert "<!doctype html" in page.text.lower()
    site = f"http://127.0.0.1:{services.ports['8088']}"
    assert link.startswith(site)
    assert link.removeprefix(f"{site}/") in httpx.get(f"{site}/index.html").text
    logs = api.post("/logs/filter", json={"logs": {"flow_run_id": {"any_": [run["id"]]}}}).json()
    assert any("numerics on eager@cpu/fp32" in line["message"] for line in logs)

    deployed = {each["name"]: each for each in api.post("/deployments/filter", json={}).json()}
    assert set(deployed) == {"adapt", "regress"}
    assert deployed["regress"]["schedules"][0]["parameters"]["targets"] == ["eager@cpu/bf16"]
    assert all(not each["pull_steps"] for each in deployed.values())

"""`day0 inventory` and `day0 inventory diff` as a person calls them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from day0.adapters.base.errors import SourceError
from day0.adapters.models.expected_run import ask_expected
from day0.flows import cli, staging_run
from support.local_hub import LocalHub
from support.raw_checkpoints import write_sharded
from support.small_releases import SMOLLM2, smollm2_tensors

HEAVY = ("torch", "prefect", "transformers", "numpy", "huggingface_hub")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def release(name: str, **changes: Any) -> str:
    """A folder with SmolLM2's headers and config."""
    folder = Path(name)
    folder.mkdir()
    layout = {tensor: (dtype.upper(), shape) for tensor, (dtype, shape) in smollm2_tensors().items()}
    write_sharded(folder, layout, 2, sparse=True)
    (folder / "config.json").write_text(json.dumps({**SMOLLM2, **changes}))
    return f"./{name}"


def test_text_says_what_it_is_then_what_is_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inventory", release("a", tie_word_embeddings=False)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("./a at ")
    assert lines[0].endswith(": fail")
    assert "LlamaForCausalLM (llama)" in lines[1]
    first = next(number for number, line in enumerate(lines) if line.startswith("error"))
    assert "INV019" in lines[first]
    assert first < next(number for number, line in enumerate(lines) if line.startswith("parameters"))
    text = "\n".join(lines)
    for words in ("134,515,008 logical", "with embedding and head", "without embedding", "model.layers 0-29",
                  "one rank", "9 heads % 8 = 1"):  # fmt: skip
        assert words in text


def test_json_has_the_names_that_tools_rely_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inventory", release("a"), "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    totals = (
        "tensors", "shards", "data_bytes", "logical_params", "aux_elements", "mtp_params", "vision_params",
        "routed_expert_params", "main_params",
    )  # fmt: skip
    assert set(totals) <= set(shape["totals"])
    assert shape["totals"]["logical_params"] == 134_515_008
    active = ("with_embedding_and_head", "without_embedding", "without_embedding_and_head")
    assert set(shape["active_params"]) == set(active)
    assert (shape["kv_bytes_per_token"], shape["kv_bytes_per_token_growing"]) == (23040, 23040)
    assert shape["state_bytes_per_sequence"] == 0
    assert {"name", "index", "kind", "feed_forward", "params", "bytes"} <= set(shape["layers"][0])
    assert {"scheme", "bits", "group", "excluded"} <= set(shape["quantization"])
    assert {"config", "tensors"} <= set(shape["tied_embeddings"])
    assert isinstance(shape["findings"], list)
    assert len(shape["distribution"]["rows"]) == 30 * 3 + 2


def test_csv_to_a_file_and_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    model = release("a")
    assert cli.main(["inventory", model, "--csv", "table.csv"]) == 0
    capfd.readouterr()
    assert cli.main(["inventory", model, "--csv", "-"]) == 0
    text = capfd.readouterr().out
    assert text == Path("table.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sum(int(row["params"]) for row in rows) == 134_515_008
    assert len(rows) == 30 * 3 + 2


def test_memory_for_the_layouts_that_were_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    model = release("a")
    assert cli.main(["inventory", model, "--json", "--layout", "TP=3", "--layout", "pp=2,tp=1"]) == 0
    memory = json.loads(capfd.readouterr().out)["distribution"]["memory"]
    assert [item["layout"] for item in memory] == ["tp=3,ep=1,pp=1,dp=1", "tp=1,ep=1,pp=2,dp=1"]
    assert cli.main(["inventory", model, "--json"]) == 0  # another key: the record is not the one above
    assert len(json.loads(capfd.readouterr().out)["distribution"]["memory"]) == 3


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--layout", "tp=zwei"], "E165"),
        (["--csv", "-", "--json"], "E166"),
        (["--csv", "--json"], "E166"),
        (["--csv", "no/such/folder.csv"], "E167"),
    ],
)
def test_flags_that_cannot_be_used(
    arguments: list[str], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inventory", release("a"), *arguments]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert f"[{code}]" in captured.err
    assert "Traceback" not in captured.err


def test_progress_goes_to_standard_error_in_plain_lines(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inventory", release("a"), "--json"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert any(line.startswith("headers 2/2 ") and line.endswith(" bytes") for line in lines), lines


def test_diff_of_two_folders(capfd: pytest.CaptureFixture[str]) -> None:
    before, after = release("a"), release("b", rope_theta=1)
    assert cli.main(["inventory", "diff", before, after]) == 0
    assert capfd.readouterr().out.startswith("No tensor changed")
    assert cli.main(["inventory", "diff", before, after, "--fail-on-change"]) == 1
    assert cli.main(["inventory", "diff", before, before, "--fail-on-change"]) == 0
    capfd.readouterr()
    assert cli.main(["inventory", "diff", before, after, "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    assert [change["name"] for change in shape["changed"] if change["topic"] == "config"] == ["/rope_theta"]


def test_diff_reads_a_saved_record(capfd: pytest.CaptureFixture[str]) -> None:
    model = release("a")
    assert cli.main(["inventory", model, "--json"]) == 0
    Path("saved.json").write_text(capfd.readouterr().out)
    assert cli.main(["inventory", "diff", "saved.json", model, "--fail-on-change"]) == 0
    assert capfd.readouterr().out.startswith("Nothing changed.")


@pytest.mark.parametrize("damage", [{"layers": 3}, {"totals": None}, {"patterns": [{"pattern": "x"}]}])
def test_diff_refuses_a_record_that_it_cannot_read(
    damage: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inventory", release("a"), "--json"]) == 0
    shape = {**json.loads(capfd.readouterr().out), **damage}
    Path("saved.json").write_text(json.dumps(shape))
    assert cli.main(["inventory", "diff", "saved.json", "./a"]) == 2
    assert "[E168]" in capfd.readouterr().err


def test_diff_refuses_a_set_of_layers_that_is_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inventory", release("a"), "--json"]) == 0
    shape = json.loads(capfd.readouterr().out)
    shape["patterns"][0]["layers"] = "0-x"
    Path("saved.json").write_text(json.dumps(shape))
    assert cli.main(["inventory", "diff", "saved.json", "./a"]) == 2
    assert "[E168]" in capfd.readouterr().err


def test_an_inventory_loads_nothing_heavy() -> None:
    """A person waits for every import; a local release needs none of these."""
    release("a")
    code = (
        "import sys\nfrom day0.flows.cli import main\nstatus = main(['inventory', './a'])\n"
        f"print(status, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stderr.splitlines()[-1] == "0 []"


def test_notes_are_told_after_the_findings(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inventory", release("a", auto_map={"AutoModel": "m.A", "AutoConfig": "m.A"})]) == 0
    lines = capfd.readouterr().out.splitlines()
    acting = next(number for number, line in enumerate(lines) if line.startswith(("warning", "Nothing")))
    note = next(number for number, line in enumerate(lines) if line.startswith("note     INV060"))
    assert acting < note < next(number for number, line in enumerate(lines) if line.startswith("parameters"))
    text = " ".join(" ".join(lines).split())
    assert "asks for 1 class of" not in text
    assert "INV016 the configs ask for 1 class of the repository's own code: m.A" in text
    assert "INV069 a class that the configs name is in no file of the release: 'm.A'" in text
    assert "1 class of its own asked for" in text
    assert "trust-remote-code" not in text


def test_four_witnesses_are_always_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inventory", release("a")]) == 0
    lines = [line[14:] for line in capfd.readouterr().out.splitlines()]
    assert any(line.startswith("tree: 4 files, 2 of weights with 269 MB: agree") for line in lines), lines
    assert any(line.startswith("index: 272 tensors in 2 files") for line in lines)
    assert "headers: 272 tensors in 2 files with 269 MB: agree" in lines
    assert any(line.startswith("config: 30 layers, ") and ": agree" in line for line in lines)


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_lines_are_no_longer_than_the_screen(
    columns: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["inventory", release("a", tie_word_embeddings=False)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    assert ("28,311,552" in text, "28.3M" in text) == (columns >= 100, columns < 100)
    assert ("[B, T, 576]" in text) == (columns >= 100)


def test_a_pipe_gets_the_same_width_everywhere(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert cli.main(["inventory", release("a")]) == 0
    assert 100 < max(map(len, capfd.readouterr().out.splitlines())) <= 120


def on_a_terminal(arguments: list[str], columns: int) -> str:
    """What stands on a real terminal of that width, standard output and error as they come."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, columns))
    code = f"import sys\nfrom day0.flows.cli import main\nsys.exit(main({arguments!r}))"
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment["TERM"] = "xterm"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        pieces = []
        try:
            while piece := os.read(master, 65536):
                pieces.append(piece)
        except OSError:  # the last holder of the terminal is gone
            pass
        os.close(master)
        assert process.wait(timeout=60) == 0
    return b"".join(pieces).decode()


def test_the_bar_is_gone_before_the_answer_is_printed() -> None:
    model = release("a")
    for arguments in (["inventory", model], ["inventory", "diff", model, model]):
        told = on_a_terminal(arguments, 80)
        first = "./a at " if arguments[1] == model else "Nothing changed."
        before, after = told.split(first, 1)
        assert before.endswith(("\n", "\x1b[?25h")), before[-80:]
        assert "headers" in before
        assert "\x1b" not in after, "nothing is drawn again below"
        assert "2/2" not in after


def test_what_the_config_implies_shows_that_it_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int, str]] = []
    command = [sys.executable, "-c", "import time; time.sleep(1.5)"]
    answer = ask_expected({}, command=command, progress=lambda step, *state: told.append(state))
    assert answer.reason
    assert told[0][:2] == (0, 1)
    assert told[1] == (0, 1, "transformers, in a process of its own, 1 s")
    assert told[-1][:2] == (1, 1)


def test_staging_is_in_the_json(local_hub: LocalHub, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path("small")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMOLLM2))
    shards = write_sharded(folder, {"model.norm.weight": ("BF16", (576,))}, 1)
    local_hub.add("org/small", folder)
    cli.main(["inventory", "org/small", "--stage", "--json"])
    staging = json.loads(capfd.readouterr().out)["staging"]
    assert staging["state"] == "staged"
    assert staging["fetched_bytes"] >= shards[0].stat().st_size
    assert Path(staging["folder"], shards[0].name).exists()
    assert staging["gb_per_second"] > 0
    cli.main(["inventory", "./small", "--stage", "--json"])
    assert json.loads(capfd.readouterr().out)["staging"]["state"] == "local"


def test_a_staging_that_fails_is_in_the_json_too(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: str, record: object) -> None:
        raise SourceError("there is no room", code="E210")

    monkeypatch.setattr(staging_run, "stage_release", full)
    assert cli.main(["inventory", release("a"), "--stage", "--json"]) != 0
    captured = capfd.readouterr()
    shape = json.loads(captured.out)
    assert shape["totals"]["tensors"] == 272
    assert (shape["staging"]["state"], shape["staging"]["code"]) == ("failed", "E210")
    assert "[E210]" in captured.err


def test_the_verb_has_the_flags_that_it_uses(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inventory", "--help"]) == 0
    text = capfd.readouterr().out
    assert {"--revision", "--offline", "--store", "--json"} <= set(text.split())
    assert not {"--prompt", "--probe-budget", "--memory", "--timeout", "--worker-command"} & set(text.split())

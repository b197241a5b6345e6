"""The house rules that a machine can hold: sizes, rooms, light verbs, README commands, nothing private."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("flows", "reports", "tasks", "adapters", "templates", "testing")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
HEAVY = ("torch", "prefect", "transformers")


def tracked(*patterns: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / line for line in listing.splitlines() if (ROOT / line).is_file()]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_file_and_no_function_is_too_long() -> None:
    files = tracked("*.py")
    assert len(files) > 50
    too_long = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MAX_FILE_LINES:
            too_long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for function in functions(ast.parse(text)):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > MAX_FUNCTION_LINES:
                too_long.append(f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {length} lines")
    assert too_long == []


def imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def test_nothing_imports_a_bare_room() -> None:
    bare = []
    for path in tracked("*.py"):
        for name in imported_names(ast.parse(path.read_text(encoding="utf-8"))):
            if name.split(".")[0] in ROOMS:
                bare.append(f"{path.relative_to(ROOT)} imports {name}")
    assert bare == []


def test_the_worker_side_imports_only_what_a_vendors_environment_has() -> None:
    allowed = {"torch", "safetensors", "day0_worker"} | set(sys.stdlib_module_names)
    lazily = {"transformers"}
    for path in tracked("adapters/worker_side/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        top_level = ast.Module(
            body=[node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)],
            type_ignores=[],
        )
        for name in imported_names(top_level):
            assert name.split(".")[0] in allowed, f"{path.name} imports {name} at its top"
        for name in imported_names(tree):
            assert name.split(".")[0] in allowed | lazily, f"{path.name} imports {name}"


def test_a_wheel_holds_every_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = set(tomllib.load(file)["tool"]["setuptools"]["packages"])
    rooms = ("flows", "reports", "tasks", "adapters", "templates", "testing")
    there = {
        "day0." + ".".join(path.parent.relative_to(ROOT).parts)
        for path in tracked("*__init__.py")
        if path.relative_to(ROOT).parts[0] in rooms and "worker_side" not in path.parts
    }
    assert there == listed - {"day0_worker"}


def test_no_module_of_flows_hides_another() -> None:
    from importlib.metadata import packages_distributions

    taken = set(sys.stdlib_module_names) | set(packages_distributions())
    names = {path.stem for path in (ROOT / "flows").glob("*.py")} - {"__init__"}
    assert names & taken == set()


def test_records_and_domain_code_import_no_prefect() -> None:
    for path in tracked("tasks/*.py", "reports/*.py", "adapters/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {name.split(".")[0] for name in imported_names(tree)}
        assert "prefect" not in names, path
        if path.name == "record.py":
            assert "torch" not in names, path


def test_broad_excepts_and_silenced_checks_say_why() -> None:
    silent = []
    for path in tracked("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            code, _, comment = line.partition("#")
            if re.search(r"except (Base)?Exception\b|except\s*:", code):
                near = " ".join(lines[number : number + 3])
                if "#" not in near:
                    silent.append(f"{path.relative_to(ROOT)}:{number + 1} {line.strip()}")
            ignored = re.search(r"(type: ignore\S*|noqa\S*)(.*)", comment)
            if (
                ignored
                and path != Path(__file__)
                and len(ignored[2].strip(" :#-ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,")) < 5
            ):
                silent.append(f"{path.relative_to(ROOT)}:{number + 1} {line.strip()}")
    assert silent == []


def test_no_private_path_or_package_index_is_committed() -> None:
    """Neither this checkout's folder nor the person's home, nor an index other than the installer's own."""
    places = [re.escape(f"{place}/") for place in (ROOT.resolve(), Path.home()) if len(str(place)) > 1]
    private = re.compile("|".join([*places, "--(extra-)?index-url", "--find-links"]))
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path != Path(__file__) and path.suffix not in {".png", ".gz"}
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if private.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "words", [["--help"], ["report", "--help"], ["runs"], ["diff", "--help"], ["doctor", "--help"]]
)
def test_light_verbs_load_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from day0.flows.cli import main\n"
        f"sys.argv = ['day0', *{words!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as leaving:\n    assert not leaving.code, leaving.code\n"
        f"print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def readme_commands() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_the_readme_shows_commands_that_exist() -> None:
    commands = readme_commands()
    assert any(command.startswith("make demo") for command in commands)
    from day0.flows.cli import app

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for command in commands:
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            assert set(words[1:]) <= targets, command
        elif words[0].endswith("day0"):
            app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_every_error_code_is_documented_once() -> None:
    used = {
        code
        for path in tracked("adapters/*.py", "tasks/*.py", "reports/*.py", "flows/*.py", "testing/*.py")
        for code in re.findall(r"\bE\d{3}\b", path.read_text(encoding="utf-8"))
    }
    listed = re.findall(r"^\| (E\d{3}) \|", (ROOT / "docs" / "errors.md").read_text(), flags=re.MULTILINE)
    assert listed == sorted(set(listed))
    assert used <= set(listed), sorted(used - set(listed))
    assert set(listed) <= used, sorted(set(listed) - used)

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from day0.adapters.base.errors import CheckpointError
from day0.adapters.models.spool import open_region, sweep
from day0_worker.weights import evaluate

LAYOUT = {"a": (torch.bfloat16, [3, 5]), "none": (torch.float32, [0, 2]), "b": (torch.float32, [7])}

KILLED = """
import os, signal, sys, torch
from pathlib import Path
from day0.adapters.models.spool import open_region
region = open_region({"a": (torch.float32, [4])}, folders=[Path(sys.argv[1])])
os.kill(os.getpid(), signal.SIGKILL)
"""


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_here_is_read_by_the_leaves(tmp_path: Path) -> None:
    region = open_region(LAYOUT, folders=[tmp_path])
    for name, tensor in region.tensors.items():
        tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape))
        assert torch.equal(evaluate(region.leaves[name], {}), tensor)
    assert region.tensors["a"].dtype == torch.bfloat16
    assert len({leaf["offset"] % 64 for leaf in region.leaves.values()}) == 1
    (name,) = files(tmp_path)
    assert f"-{os.getpid()}-" in name
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    kept = region.tensors["b"]
    region.close()
    assert files(tmp_path) == []
    assert kept.tolist() == list(range(7))


def test_a_file_goes_with_its_region(tmp_path: Path) -> None:
    region = open_region(LAYOUT, folders=[tmp_path])
    del region
    assert files(tmp_path) == []


def test_a_file_can_be_laid_out_anew_where_it_has_room(tmp_path: Path) -> None:
    region = open_region(LAYOUT, folders=[tmp_path], room=1000)
    assert region.used
    region.clear()
    assert not region.used
    assert region.lay({"c": (torch.float32, [200])})
    assert not region.lay({"c": (torch.float32, [300])})
    held = region.tensors["c"][3:]
    region.clear()
    assert region.used
    del held
    assert not region.used


def test_files_of_a_killed_run_are_swept_and_those_of_a_living_one_are_not(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL
    (left,) = files(tmp_path)
    other = tmp_path / "day0-spool-1-1"
    with other.open("w") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        region = open_region(LAYOUT, folders=[tmp_path])
        assert left not in files(tmp_path)
        assert other.name in files(tmp_path)
        region.close()
    sweep(tmp_path)
    assert files(tmp_path) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("x")
    (tmp_path / "day0-spool-5-5").symlink_to(target)
    sweep(tmp_path)
    assert target.read_text() == "x"


def test_the_next_folder_is_taken_where_there_is_no_room(tmp_path: Path) -> None:
    region = open_region(LAYOUT, folders=[tmp_path / "absent", tmp_path])
    assert len(files(tmp_path)) == 1
    region.close()
    with pytest.raises(CheckpointError, match="no room") as caught:
        open_region({"a": (torch.uint8, [2**60])}, folders=[tmp_path])
    assert caught.value.code == "E210"
    assert files(tmp_path) == []


def test_a_forked_child_leaves_its_parents_file_alone(tmp_path: Path) -> None:
    region = open_region(LAYOUT, folders=[tmp_path])
    child = os.fork()
    if child == 0:
        region.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(files(tmp_path)) == 1
    region.close()

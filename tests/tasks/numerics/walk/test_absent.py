from __future__ import annotations

from pathlib import Path

from day0.adapters.base.errors import CheckpointError
from day0.adapters.checkpoints.release import open_release
from day0.tasks.numerics.walk.absent import absent_files, with_files
from support.tiny_models import save_tiny

LACKS = CheckpointError("node cannot run: the checkpoint lacks weight", code="E461")


def test_what_lacks_though_all_files_are_there_stays_as_it_is(tmp_path: Path) -> None:
    checkpoint = open_release(str(save_tiny("llama", tmp_path / "model"))).checkpoint
    assert absent_files(checkpoint) == []
    assert with_files(LACKS, checkpoint) is LACKS


def test_absent_files_are_named_and_other_errors_are_not_about_them(tmp_path: Path) -> None:
    folder = save_tiny("llama", tmp_path / "model")
    (folder / "model-00002-of-00003.safetensors").unlink()
    checkpoint = open_release(str(folder)).checkpoint
    told = with_files(LACKS, checkpoint)
    assert isinstance(told, CheckpointError)
    assert (told.code, told.message) == (
        "E461",
        f"{LACKS.message}; of the files that the index names, model-00002-of-00003.safetensors is not there",
    )
    assert told.remedy == "Fetch model-00002-of-00003.safetensors, then run the comparison again."
    other = CheckpointError("the file ends", code="E301")
    assert with_files(other, checkpoint) is other


def test_an_upload_that_has_just_begun_names_what_its_index_announces(tmp_path: Path) -> None:
    folder = save_tiny("llama", tmp_path / "model")
    for file in folder.glob("*.safetensors"):
        file.unlink()
    told = with_files(LACKS, open_release(str(folder)).checkpoint)
    assert "model-00001-of-00003.safetensors, model-00002-of-00003.safetensors, " in told.message
    (folder / "model.safetensors.index.json").unlink()
    told = with_files(LACKS, open_release(str(folder)).checkpoint)
    assert told.message == f"{LACKS.message}; the release has no tensor files"
    assert told.remedy == "Fetch the tensor files of the release, then run the comparison again."

"""Configuration and files of load requests, and the folders they are written to."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError, ModelLoadError
from penstock.models.repository.override import ModelOverride, ScratchFolder


@pytest.mark.contract("G-12")
def test_parameters_are_a_configuration_and_files() -> None:
    override = ModelOverride.from_parameters({"config": "{}", "file:1/m": b"x"})
    assert override == ModelOverride("{}", {"file:1/m": b"x"})


def test_no_parameters_override_nothing() -> None:
    assert ModelOverride.from_parameters({}) is None


@pytest.mark.contract("G-12")
@pytest.mark.parametrize("parameters", [{"other": "x"}, {"config": b"{}"}, {"file:1/m": "x"}])
def test_other_parameters_are_refused(parameters: dict[str, str | bytes]) -> None:
    (name,) = parameters
    with pytest.raises(InvalidRequestError, match=rf"^unrecognized load parameter '{name}'\.$"):
        ModelOverride.from_parameters(parameters)


def test_files_are_written_with_the_folders_above_them(tmp_path: Path) -> None:
    ModelOverride("", {"file:1/model.py": b"a", "file:/labels.txt": b"b"}).write(tmp_path)
    assert (tmp_path / "1" / "model.py").read_bytes() == b"a"
    assert (tmp_path / "labels.txt").read_bytes() == b"b"


@pytest.mark.contract("X-18")
@pytest.mark.parametrize(
    "name", ["file:", "file:.", "file:..", "file:../x", "file:1/../../x", "file:1/\0"]
)
def test_no_file_leaves_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(ModelLoadError, match="must stay within model directory"):
        ModelOverride("", {name: b"evil"}).write(folder)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(
    "names",
    [
        ["file:" + "A" * 256],
        ["file:" + "A/" * 600 + "A"],
        ["file:1", "file:1/m"],
        ["file:1/m", "file:1"],
        ["file:1/a\nb"],
        [r"file:1\m"],
        ["file:C:/m"],
    ],
)
def test_paths_that_cannot_be_are_the_clients_fault(tmp_path: Path, names: list[str]) -> None:
    """Names that are too long or none anywhere, and a file below or in place of another."""
    with pytest.raises(ModelLoadError, match=f"^Invalid file path '{re.escape(names[-1])}': "):
        ModelOverride("", dict.fromkeys(names, b"x")).write(tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b\0", "\\"]), min_size=1).map("/".join))
def test_no_file_leaves_the_folder_whatever_it_is_called(name: str) -> None:
    with TemporaryDirectory() as folder:
        with suppress(ModelLoadError):
            ModelOverride("", {f"file:{name}": b"x"}).write(Path(folder, "model"))
        assert {path.name for path in Path(folder).iterdir()} <= {"model"}


async def test_a_scratch_folder_goes_with_its_last_reference() -> None:
    folder = ScratchFolder.create()
    folder.retain()
    folder.retain()
    await folder.release()
    assert folder.path.is_dir()
    await folder.release()
    assert not folder.path.exists()

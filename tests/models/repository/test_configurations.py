"""Configurations of models, from files and from requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.repository.files import CONFIG, poll_failure, read_model, write_files
from penstock.core.errors import InternalError
from penstock.models.repository.override import ModelOverride
from penstock.models.repository.repository import ModelRepository


def test_broken_config_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "m/config.pbtxt", text="max_batch: 4")
    path = tmp_path / "m/config.pbtxt"
    logged = poll_failure(caplog, ModelRepository([tmp_path]))
    start = f"Poll failed for model directory 'm': failed to read text proto from {path}:1:1: "
    assert logged.startswith(start)


@pytest.mark.parametrize("path", ["config.pbtxt", "configs/mine.pbtxt"])
def test_config_that_is_a_folder_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    write_files(tmp_path, f"m/{path}/")
    logged = poll_failure(caplog, ModelRepository([tmp_path], "mine"))
    assert logged == (
        "Poll failed for model directory 'm': failed to read text proto from"
        f" {tmp_path / 'm' / path}: it is not a file"
    )


@pytest.mark.contract("R-10")
def test_config_can_be_chosen_by_name(tmp_path: Path) -> None:
    write_files(tmp_path, "m/config.pbtxt", text='backend: "a"')
    write_files(tmp_path, "m/configs/h100.pbtxt", text='backend: "b"')
    assert read_model(tmp_path, config_name="h100").config.backend == "b"
    assert read_model(tmp_path, config_name="other").config.backend == "a"
    assert read_model(tmp_path).config.backend == "a"


@pytest.mark.contract("R-03")
def test_config_in_a_version_folder_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "m/1/config.pbtxt", "m/1/model.onnx", text="not even read")
    assert not read_model(tmp_path).has_config
    assert "a model's configuration belongs in" in caplog.messages[-1]
    assert str(tmp_path / "m/1/config.pbtxt") in caplog.messages[-1]


def test_config_in_a_version_folder_is_named_where_one_is_lacking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "m/1/config.pbtxt", text=CONFIG)
    lost, place = tmp_path / "m/1/config.pbtxt", tmp_path / "m"
    logged = poll_failure(caplog, ModelRepository([tmp_path]))
    assert logged.endswith(f"; '{lost}' is not read: it belongs in '{place}'")


def test_config_in_a_version_folder_is_no_matter_beside_a_broken_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "m/config.pbtxt", "m/1/config.pbtxt", text="max_batch_size: 4")
    assert "is not read" not in poll_failure(caplog, ModelRepository([tmp_path]))


def test_override_stands_in_for_the_file(tmp_path: Path) -> None:
    write_files(tmp_path, "m/config.pbtxt", text=CONFIG)
    files = ModelRepository([tmp_path]).read("m", ModelOverride('{"backend": "repeat"}'))
    assert (files.config.backend, files.config.max_batch_size) == ("repeat", 0)
    assert files.has_config


def test_override_that_is_wrong_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "m/")
    with pytest.raises(InternalError, match=r"^failed to load 'm', failed to poll"):
        ModelRepository([tmp_path]).read("m", ModelOverride('{"foo": 1}'))
    assert caplog.messages[-1] == (
        "Poll failed for model directory 'm': "
        "Invalid config override: unknown field 'foo' in model configuration"
    )


@pytest.mark.contract("X-18")
def test_files_stand_in_for_all_that_the_repository_has(tmp_path: Path) -> None:
    write_files(tmp_path, "m/1/model", "m/5/model", "m/config.pbtxt", text=CONFIG)
    override = ModelOverride('{"backend": "repeat"}', {"file:2/model": b"x"})
    files = ModelRepository([tmp_path]).read("m", override)
    assert files.folder is not None
    try:
        assert files.versions == {2: files.path / "2"}
        assert files.path == files.folder.path
        assert (files.config.backend, files.config.max_batch_size) == ("repeat", 0)
    finally:
        files.folder.remove()


@pytest.mark.contract("X-18")
@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            ModelOverride(None, {"file:1/m": b""}),
            "Load parameter 'config' must be specified for model file override",
        ),
        (ModelOverride("{", {"file:1/m": b""}), "Invalid config override: "),
        (ModelOverride("{}", {"file:../m": b""}), "Invalid file parameter 'file:../m'"),
        (ModelOverride('{"backend":"b"}'), "model not found in any model repository."),
    ],
)
def test_invalid_overrides_are_logged_and_leave_nothing(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    override: ModelOverride,
    problem: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InternalError, match=r"^failed to load 'made', failed to poll"):
        ModelRepository([tmp_path]).read("made", override)
    assert problem in caplog.messages[-1]
    assert list(tmp_path.iterdir()) == []

"""The engine gets a writable copy of a read-only model."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from penstock_backends.openvino_genai import OpenVinoGenAiBackend
from penstock_backends.openvino_genai.writable import writable


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What file modes cannot do for tests that run as root."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)


def test_a_writable_model_is_not_copied(model: Path) -> None:
    with writable(model) as given:
        assert given == model


@pytest.mark.usefixtures("read_only")
def test_a_file_that_may_only_be_read_is_copied_for_the_time_of_reading(model: Path) -> None:
    model.chmod(0o444)
    with writable(model) as given:
        assert given != model
        assert given.name == model.name
        assert given.read_bytes() == b"weights"
        assert given.stat().st_mode & 0o200
    assert not given.parent.exists()


@pytest.mark.usefixtures("read_only")
def test_a_copy_lies_where_the_temporary_files_of_the_process_are(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go with the process, however it ends."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with writable(model) as given:
        assert tmp_path in given.parents
    assert OpenVinoGenAiBackend.traits.private_tmp


@pytest.mark.usefixtures("read_only")
def test_a_folder_is_only_read(tmp_path: Path) -> None:
    with writable(tmp_path) as given:
        assert given == tmp_path

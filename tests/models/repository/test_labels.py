"""Label files."""

from __future__ import annotations

from os import fsdecode
from pathlib import Path

import pytest

from penstock.core.config import ModelConfig, ModelOutput
from penstock.core.errors import InternalError
from penstock.models.repository.version_files import read_labels

CONFIG = ModelConfig(output=(ModelOutput(name="A", label_filename="a.txt"), ModelOutput(name="B")))


@pytest.mark.contract("X-03", "C-16")
@pytest.mark.parametrize("text", [b"zero\n\n two\r\nthree", b"zero\n\n two\r\nthree\n"])
def test_a_line_is_the_label_of_its_index(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(text)
    assert read_labels(CONFIG, tmp_path) == {"A": [b"zero", b"", b" two\r", b"three"]}


def test_a_file_that_is_not_there_fails_the_load(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="failed to open text file for read a\\.txt: No such"):
        read_labels(CONFIG, tmp_path)


def test_a_file_with_a_name_in_another_encoding_is_found(tmp_path: Path) -> None:
    """The configuration has lost the bytes that are not UTF-8."""
    Path(tmp_path, fsdecode(b"\xff.txt")).write_bytes(b"no")
    Path(tmp_path, fsdecode(b"\xffa.txt")).write_bytes(b"\xd0\xcd")
    assert read_labels(CONFIG, tmp_path) == {"A": [b"\xd0\xcd"]}


def test_names_that_differ_in_such_bytes_alone_stand_for_no_file(tmp_path: Path) -> None:
    Path(tmp_path, fsdecode(b"\xffa.txt")).write_bytes(b"one")
    Path(tmp_path, fsdecode(b"a.txt\xff")).write_bytes(b"two")
    with pytest.raises(InternalError, match="failed to open text file for read a\\.txt: No such"):
        read_labels(CONFIG, tmp_path)

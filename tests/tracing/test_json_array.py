"""A JSON array in a file that is valid at every moment."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.tracing.json_array import JsonArrayFile


@given(parts=st.lists(st.lists(st.integers(), min_size=1, max_size=3), min_size=1, max_size=6))
def test_the_array_is_whole_after_each_append(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("array") / "a.json"
    path.write_text("what was there before")
    file = JsonArrayFile(str(path))
    seen: list[int] = []
    for part in parts:
        file.append(",".join(map(str, part)))
        seen += part
        assert json.loads(path.read_text()) == seen
    file.close()


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file may grow beyond this size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("room", [6, 7, 12, 20])
def test_an_element_without_room_is_left_out(tmp_path: Path, room: int) -> None:
    """Also where a part of it was written."""
    path = tmp_path / "a.json"
    file = JsonArrayFile(str(path))
    file.append('"one"')
    with disk_of(7 if room < 7 else room), pytest.raises(OSError, match=r"[Nn]o space|too large"):
        file.append('"a longer one that does not fit"')
    assert json.loads(path.read_text()) == ["one"]
    file.append('"two"')
    assert json.loads(path.read_text()) == ["one", "two"]
    file.close()


def test_a_first_element_without_room_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    file = JsonArrayFile(str(path))
    with disk_of(5), pytest.raises(OSError, match=r"[Nn]o space|too large"):
        file.append('"does not fit"')
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]
    file.append("1")
    assert path.read_text() == "[1]"
    file.close()


def test_a_file_appears_with_its_first_elements(tmp_path: Path) -> None:
    """And where a link points to, as one that is there is replaced."""
    path = tmp_path / "link.json"
    path.symlink_to(tmp_path / "a.json")
    file = JsonArrayFile(str(path))
    assert not path.exists()
    file.append("1")
    assert (tmp_path / "a.json").read_text() == "[1]"
    assert path.is_symlink()
    file.close()


def test_the_reason_is_that_of_the_write() -> None:
    file = JsonArrayFile("/dev/full")  # which is not replaced
    with pytest.raises(OSError, match="No space left on device"):
        file.append("1")
    file.close()


def test_a_file_that_was_moved_or_removed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    file = JsonArrayFile(str(path))
    file.append("1")
    in_place = [file.in_place]
    path.rename(tmp_path / "b.json")
    in_place.append(file.in_place)
    path.write_text("another")
    in_place.append(file.in_place)
    file.close()
    assert in_place == [True, False, False]


def test_a_file_is_for_its_user_alone(tmp_path: Path) -> None:
    """Also where one was there, and where a killed server left a part of another."""
    path = tmp_path / "a.json"
    for there in (path, tmp_path / ".a.json.new"):
        there.write_text("[]")
        there.chmod(0o644)
    JsonArrayFile(str(path)).append("1")
    assert path.stat().st_mode & 0o777 == 0o600

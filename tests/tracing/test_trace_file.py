"""Which file a trace is written to: the trace file, or a numbered one beside it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from penstock.settings import TraceSettings
from penstock.tracing.trace_file import TraceFiles

pytestmark = pytest.mark.contract("T-08")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.json"


@pytest.fixture
def files(path: Path) -> TraceFiles:
    return TraceFiles(str(path))


def written(path: Path) -> dict[str, list[int]]:
    """The traces in each file."""
    found = sorted(path.parent.iterdir())
    return {each.name: json.loads(each.read_text()) for each in found}


def settings(log_frequency: int = 0, count: int = -1) -> TraceSettings:
    return TraceSettings(log_frequency=log_frequency, count=count)


def test_without_a_frequency_all_traces_go_to_the_file(files: TraceFiles, path: Path) -> None:
    for number in (1, 2):
        files.add("all", settings(), str(number))
        files.flush()
        assert written(path)["t.json"][-1] == number
    files.finish("all", settings())
    assert written(path) == {"t.json": [1, 2]}


def test_a_frequency_makes_numbered_files(files: TraceFiles, path: Path) -> None:
    for number in range(5):
        files.add("all", settings(2), str(number))
    assert written(path) == {"t.json.0": [0, 1], "t.json.1": [2, 3]}
    files.finish("all", settings(2))
    assert written(path)["t.json.2"] == [4]


def test_a_count_that_is_used_up_makes_a_numbered_file(files: TraceFiles, path: Path) -> None:
    for number in (1, 2):
        files.add("all", settings(count=2), str(number))
    assert written(path) == {}
    files.use_up("all")
    assert written(path) == {"t.json.0": [1, 2]}


def test_a_count_that_is_not_used_up_goes_to_the_file(files: TraceFiles, path: Path) -> None:
    files.add("all", settings(count=9), "1,2")
    files.finish("all", settings(count=9))
    files.flush()
    assert written(path) == {"t.json": [1, 2]}


def test_settings_share_the_file_and_the_numbers(files: TraceFiles, path: Path) -> None:
    files.add("all", settings(), "1")
    files.add("of a model", settings(2), "2")
    files.add("of another", settings(1), "3")
    files.add("all", settings(), "4")
    files.add("of a model", settings(2), "5")
    files.flush()
    assert written(path) == {"t.json": [1, 4], "t.json.0": [3], "t.json.1": [2, 5]}


def test_files_that_are_there_are_replaced(files: TraceFiles, path: Path) -> None:
    path.write_text("old")
    Path(f"{path}.0").write_text("old")
    files.add("frequent", settings(1), "1")
    assert path.read_text() == "old"
    files.add("all", settings(), "2")
    files.flush()
    assert written(path) == {"t.json": [2], "t.json.0": [1]}


def test_what_is_gathered_is_bounded(path: Path) -> None:
    """Beyond a size the numbered file is begun."""
    files = TraceFiles(str(path), most_gathered=3)
    for _ in range(6):
        files.add("all", settings(100), "11")
    assert written(path) == {"t.json.0": [11] * 6}
    files.add("all", settings(100), "22")
    files.finish("all", settings(100))
    assert written(path) == {"t.json.0": [11] * 6 + [22]}


def test_what_waits_for_a_flush_is_bounded(path: Path) -> None:
    files = TraceFiles(str(path), most_gathered=3)
    for _ in range(3):
        files.add("all", settings(), "11")
    assert written(path) == {"t.json": [11, 11]}


def test_a_file_that_was_removed_is_made_again(files: TraceFiles, path: Path) -> None:
    files.add("all", settings(), "1")
    files.flush()
    path.unlink()
    files.add("all", settings(), "2")
    files.flush()
    assert written(path) == {"t.json": [2]}
    files.close()


def test_a_folder_that_is_gone_loses_traces_until_it_is_back(path: Path) -> None:
    folder = path.parent / "gone"
    files = TraceFiles(str(folder / "t.json"))
    files.add("any", settings(), "1")
    for write in (files.flush, partial(files.add, "any", settings(1), "1")):
        with pytest.raises(FileNotFoundError):
            write()
    folder.mkdir()
    files.add("any", settings(), "2")
    files.add("any", settings(1), "3")
    files.flush()
    assert written(folder / "t.json") == {"t.json": [2], "t.json.0": [3]}

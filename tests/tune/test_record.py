"""The record of a search: it survives any stop, and knows whether it fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.tune.errors import TuneError
from penstock_client.tune.record import Record
from penstock_client.tune.space import key

_CIRCUMSTANCES = {"model": "m", "load": ("--duration=1",)}


def _begun(path: Path, *, resume: bool = False) -> Record:
    record = Record(path)
    record.begin(_CIRCUMSTANCES, resume=resume)
    return record


def _written(path: Path) -> None:
    record = _begun(path)
    record.add_facts({"config": {"name": "m"}})
    record.add({}, "concurrency 1", {"requests": 1})
    record.add({"instances": 2}, "concurrency 1", {"requests": 2})
    record.add_failure({"instances": 3}, "too many")


def test_everything_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "record"
    _written(path)
    record = _begun(path, resume=True)
    assert record.facts == {"config": {"name": "m"}}
    assert record.points[key({"instances": 2})] == {"concurrency 1": {"requests": 2}}
    assert record.failures == {key({"instances": 3}): "too many"}


@given(st.data())
def test_a_line_that_was_cut_off_is_lost_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("record") / "record"
    _written(path)
    whole = path.read_bytes()
    head = whole.index(b"\n") + 1
    path.write_bytes(whole[: data.draw(st.integers(head, len(whole)))])
    kept = path.read_bytes().count(b"\n")
    record = _begun(path, resume=True)
    record.add({"instances": 9}, "concurrency 1", {"requests": 9})
    again = _begun(path, resume=True)
    assert path.read_bytes().count(b"\n") == kept + 1
    assert again.points == record.points
    assert key({"instances": 9}) in again.points


def test_another_search_is_not_overwritten(tmp_path: Path) -> None:
    _written(tmp_path / "record")
    with pytest.raises(TuneError, match="--resume"):
        _begun(tmp_path / "record")


def test_a_search_without_a_measurement_is_begun_anew(tmp_path: Path) -> None:
    record = _begun(tmp_path / "record")
    record.add_failure({}, "a shape is missing")
    assert _begun(tmp_path / "record").failures == {}
    assert _begun(tmp_path / "record", resume=True).failures == {}


def test_measurements_under_other_circumstances_are_refused_by_name(tmp_path: Path) -> None:
    _written(tmp_path / "record")
    other = Record(tmp_path / "record")
    with pytest.raises(TuneError, match="with another load: its figures cannot be compared"):
        other.begin({**_CIRCUMSTANCES, "load": ("--duration=2",)}, resume=True)


@pytest.mark.parametrize(
    ("line", "words"), [("{", "record:2: not JSON"), ("[]", "record:2: not an object")]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    _begun(tmp_path / "record")
    with (tmp_path / "record").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(TuneError, match=words):
        _begun(tmp_path / "record", resume=True)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record").write_text('{"version": 99}\n')
    with pytest.raises(TuneError, match="not a record of this version"):
        _begun(tmp_path / "record", resume=True)


def test_an_output_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TuneError, match=r"file/folder/record cannot be written: Not a directory"):
        _begun(tmp_path / "file" / "folder" / "record")


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="cannot be read: Is a directory"):
        _begun(tmp_path, resume=True)

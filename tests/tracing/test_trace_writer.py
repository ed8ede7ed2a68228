"""The thread that writes trace files: grouping, room to wait, files that cannot be written."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from harness.serving import wait_until
from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Timeline
from penstock.settings import TraceSettings
from penstock.tracing import trace_writer
from penstock.tracing.settings import TraceControl
from penstock.tracing.trace_writer import TraceWriter
from penstock.tracing.tracer import Tracer
from tracing.traces import model_request

_BOTH = frozenset({"TIMESTAMPS", "TENSORS"})


class House:
    """A tracer that writes files; `ask` is a request from its begin to its end."""

    def __init__(
        self, path: Path, most_traces: int = 100, most_bytes: int = 1 << 20, **settings: Any
    ) -> None:
        self.path = path
        self.numbers = count(1)
        values = {"levels": frozenset({"TIMESTAMPS"}), "rate": 1, "file": str(path), **settings}
        self.control = TraceControl(TraceSettings(**values))
        self.writer = TraceWriter(self.control, most_traces, most_bytes)
        self.tracer = Tracer(self.control, [self.writer])

    def begin(self, model: str = "simple", id: str = "") -> Timeline:
        root = self.tracer.begin(model, {}, 1)
        assert root is not None
        model_request(root, model, ("REQUEST_START", 2), id=id)
        return root

    def ask(self, model: str = "simple", id: str = "") -> None:
        finish(self.begin(model, id))

    def written(self) -> dict[str, list[str]]:
        """The ids of requests in each file."""
        found = sorted(self.path.parent.iterdir())
        return {
            each.name: [o["request_id"] for o in json.loads(each.read_text()) if "request_id" in o]
            for each in found
        }


def finish(root: Timeline) -> None:
    for timeline in (*root.trace.timelines, root):
        timeline.finish()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.json"


@pytest.mark.contract("T-08")
def test_traces_are_in_the_file_before_the_end(path: Path) -> None:
    house = House(path)
    house.ask(id="a")
    wait_until(lambda: path.exists() and house.written() == {"t.json": ["a"]})
    house.ask(id="b")
    house.writer.close()
    assert house.written() == {"t.json": ["a", "b"]}


@pytest.mark.contract("T-08")
def test_a_change_of_settings_finishes_what_was_gathered(path: Path) -> None:
    house = House(path, log_frequency=2)
    house.ask(id="a")
    house.control.change({"trace_rate": ["1"]})
    house.ask(id="b")
    house.ask(id="c")
    house.writer.close()
    assert house.written() == {"t.json.0": ["a"], "t.json.1": ["b", "c"]}


@pytest.mark.contract("T-08")
def test_a_count_that_is_used_up_has_a_file_of_its_own(path: Path) -> None:
    house = House(path, count=2)
    house.ask(id="a")
    house.ask(id="b")
    assert house.tracer.begin("simple", {}, 1) is None
    house.control.change({"trace_count": ["5"]})
    house.ask(id="c")
    house.writer.close()
    assert house.written() == {"t.json": ["c"], "t.json.0": ["a", "b"]}


@pytest.mark.contract("T-08", "T-19")
def test_a_model_with_settings_of_its_own_is_gathered_apart(path: Path) -> None:
    house = House(path, log_frequency=2)
    house.control.change({"trace_rate": ["1"]}, "own")
    for model, id in (("own", "a"), ("simple", "b"), ("own", "c"), ("simple", "d")):
        house.ask(model, id)
    house.writer.close()
    assert house.written() == {"t.json.0": ["a", "c"], "t.json.1": ["b", "d"]}


def test_a_trace_belongs_to_the_settings_at_its_begin(path: Path) -> None:
    """What was gathered under replaced settings waits for the last request under them."""
    house = House(path, log_frequency=9)
    under_way = house.begin(id="late")
    house.ask(id="early")
    house.control.change({"trace_rate": ["1"]})
    house.ask(id="new")
    finish(under_way)
    house.writer.close()
    assert house.written() == {"t.json.0": ["early", "late"], "t.json.1": ["new"]}


def test_a_file_that_cannot_be_written_is_told_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And traces are written again when it can."""
    folder = path.parent / "gone"
    house = House(folder / "t.json")
    for _ in range(3):
        house.ask()
    wait_until(lambda: bool(caplog.messages))
    wait_until(lambda: house.writer.waiting == 0)
    folder.mkdir()
    house.ask(id="back")
    house.writer.close()
    assert house.written() == {"t.json": ["back"]}
    (line,) = caplog.messages
    assert line == (
        f"trace file '{folder}/t.json' is not writable: No such file or directory; failed writes: "
        "1. Requests are served all the same"
    )


@pytest.mark.interpreted("it takes a function away, which compiled callers still have")
def test_a_trace_that_cannot_be_told_is_lost_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(path)
    with monkeypatch.context() as patched:
        patched.delattr(trace_writer, "trace_json")
        house.ask(id="lost")
        wait_until(lambda: house.writer.waiting == 0)
    house.ask(id="kept")
    house.writer.close()
    assert house.written() == {"t.json": ["kept"]}
    assert "is not writable: NameError" in caplog.text


def test_what_finds_no_room_to_wait_is_dropped_and_counted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(path, most_bytes=3, levels=_BOTH, count=2)
    large = house.begin()
    add_tensor(large)
    finish(large)
    house.ask(id="kept")
    house.writer.close()
    assert house.writer.dropped == 1
    assert "is written too slowly, or a trace has more than 64 MiB of tensors; lost traces: 1" in (
        caplog.text
    )
    assert house.written() == {"t.json.0": ["kept"]}


def test_traces_that_wait_are_bounded(path: Path) -> None:
    house = House(path, most_traces=0)
    house.ask()
    house.writer.close()
    assert house.writer.dropped == 1


def test_room_of_a_trace_is_given_back_once_it_is_written(path: Path) -> None:
    house = House(path, most_traces=1, most_bytes=4, levels=_BOTH)
    for id in ("a", "b"):
        root = house.begin(id=id)
        add_tensor(root)
        finish(root)
        wait_until(lambda: house.writer.waiting == 0)
    house.writer.close()
    assert house.written() == {"t.json": ["a", "b"]}


def add_tensor(root: Timeline) -> None:
    """One of four bytes."""
    (timeline,) = root.trace.timelines
    timeline.add_tensors("TENSOR_QUEUE_INPUT", {"IN": Tensor(DataType.FP32, (1,), bytes(4))})


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_tensors_are_freed_once_their_trace_is_written_or_lost(path: Path, room: int) -> None:
    house = House(path, most_bytes=room, levels=frozenset({"TENSORS"}))
    root = house.begin()
    trace = root.trace
    add_tensor(root)
    finish(root)
    house.writer.close()
    assert not trace.timelines  # which alone refer to the tensors
    assert house.writer.dropped == (room == 0)


def test_a_writer_without_traces_has_no_thread_and_no_file(path: Path) -> None:
    house = House(path)
    house.writer.close()
    assert not path.exists()

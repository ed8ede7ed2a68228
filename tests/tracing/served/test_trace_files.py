"""Trace files of a server that runs: what requests leave in them, and changes while it serves."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from harness.serving import Served, serving, wait_until
from tracing.served.calls import request, stub
from tracing.served.models import write_models
from tracing.summary import summary

ON = ("--trace-config=level=TIMESTAMPS", "--trace-config=rate=1")


class House:
    """A server with a trace file, and a client of it."""

    def __init__(self, server: Served, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._channel, self._service = stub(server.grpc)

    def ask(self, model: str, *ids: str, value: float = 1) -> None:
        for id in ids:
            self._service.ModelInfer(request(model, value, id=id), timeout=60)

    def ask_http(self, model: str, value: float = 1) -> None:
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [value]}
        address = f"http://{self.server.http}/v2/models/{model}/infer"
        with urllib.request.urlopen(address, json.dumps({"inputs": [tensor]}).encode()):
            pass

    def change(self, model: str = "", **settings: str | None) -> dict[str, str]:
        """Change settings, `None` clears one; what they are then."""
        message = service_pb2.TraceSettingRequest(model_name=model)
        for name, value in settings.items():
            message.settings[name].value.extend([] if value is None else [value])
        answer = self._service.TraceSetting(message, timeout=60).settings
        return {name: ",".join(value.value) for name, value in answer.items()}

    def files(self) -> dict[str, list[str]]:
        """The requests in each file, by their ids or, without one, their models."""
        return {
            path.name: [
                each.get("request_id", each["model_name"])
                for each in json.loads(path.read_text())
                if "model_name" in each
            ]
            for path in sorted(self.folder.glob("t.json*"), key=lambda path: (len(path.name), path))
        }

    def expect(self, **files: Sequence[str]) -> None:
        """Wait for these files, and no others; `_0` is `t.json.0`, `file` the one without number.

        What is expected later is not there yet.
        """
        expected = {
            "t.json" + ("" if name == "file" else name.replace("_", ".")): list(ids)
            for name, ids in files.items()
        }
        wait_until(lambda: len(self.files()) >= len(expected))
        wait_until(lambda: self.files() == expected, 20)

    def clear(self) -> None:
        for path in self.folder.glob("t.json*"):
            path.unlink()

    def close(self) -> None:
        self._channel.close()


@contextmanager
def traced(folder: Path, *arguments: str, models: Sequence[str] = ()) -> Iterator[House]:
    repository = write_models(folder / "models")
    for path in repository.iterdir():
        if path.name not in models:
            shutil.rmtree(path)
    place = folder / "traces"
    place.mkdir()
    file = f"--trace-config=triton,file={place}/t.json"
    allow = "--allow-trace-control=true"
    with serving(repository, folder / "log", file, allow, *arguments) as server:
        house = House(server, place)
        try:
            yield house
        finally:
            house.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One house for all tests that change settings; nothing is traced between them."""
    folder = tmp_path_factory.mktemp("files")
    with traced(folder, models=("plain", "ensemble", "bls", "cached")) as house:
        yield house


NOTHING = {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}


@pytest.fixture
def house(shared: House) -> Iterator[House]:
    yield shared
    for model in ("plain", "bls", "ensemble", ""):
        shared.change(model, **NOTHING)
    shared.clear()


# What follows was asked of the real server as well (2.51), with the same files for an answer,
# except that a file which is not full yet is written there at the next change, or at the exit.


@pytest.mark.contract("T-06", "T-08")
def test_every_nth_request_has_a_file(house: House) -> None:
    house.change(trace_level="TIMESTAMPS", trace_rate="3", log_frequency="1")
    house.ask("plain", *"1234567")
    wait_until(lambda: [*house.files().values()] == [["3"], ["6"]])
    house.ask("plain", "8", "9")
    wait_until(lambda: [*house.files().values()] == [["3"], ["6"], ["9"]])
    first, *others = (int(name.rpartition(".")[2]) for name in house.files())
    assert others == [first + 1, first + 2]


@pytest.mark.contract("T-06", "T-19")
def test_a_change_begins_counting_again(house: House) -> None:
    first = house.change(trace_level="TIMESTAMPS", trace_rate="3", log_frequency="1")
    house.ask("plain", "1")
    assert house.change(trace_rate="3") == first
    house.ask("plain", "2", "3", "4")
    (files,) = [*_numbered(house)]
    assert files == ["4"]


def _numbered(house: House) -> Iterator[list[str]]:
    wait_until(lambda: bool(house.files()))
    yield from house.files().values()


@pytest.mark.contract("T-06", "T-08")
def test_a_count_stops_tracing_and_makes_a_file(house: House) -> None:
    house.change(trace_level="TIMESTAMPS", trace_rate="1", trace_count="2")
    house.ask("plain", *"1234")
    (files,) = [*_numbered(house)]
    assert files == ["1", "2"]
    assert house.change()["trace_count"] == "0"
    with pytest.raises(grpc.RpcError) as refused:
        house.change(log_frequency="1")
    assert refused.value.details() == "Attempting to set invalid trace setting :"


@pytest.mark.contract("T-08", "T-19")
def test_a_model_with_a_rate_of_its_own(house: House) -> None:
    house.change(trace_level="TIMESTAMPS", trace_rate="1")
    assert house.change("plain", trace_rate="2")["trace_rate"] == "2"
    house.ask("plain", "a", "b", "c", "d")
    house.ask("cached", "e", "f")
    house.expect(file=["b", "d", "e", "f"])
    assert house.change("plain", trace_rate=None)["trace_rate"] == "1"
    house.ask("plain", "g")
    house.expect(file=["b", "d", "e", "f", "g"])


@pytest.mark.contract("T-19", "T-23")
def test_settings_of_a_step_do_not_count_within_an_ensemble(house: House) -> None:
    """The client's model decides, and then its steps are traced, too."""
    house.change(trace_rate="1", log_frequency="1")
    house.change("plain", trace_level="TIMESTAMPS")
    house.ask("ensemble", "1", value=2)
    house.change("plain", trace_level=None)
    house.change("ensemble", trace_level="TIMESTAMPS")
    house.ask("ensemble", "2", value=2)
    (ids,) = [*_numbered(house)]
    assert sorted(ids) == ["2", "2", "2", "plain", "plain"]


@pytest.mark.contract("H-11", "T-20")
def test_settings_over_http(house: House) -> None:
    def post(path: str, **settings: Any) -> dict[str, Any]:
        body = json.dumps(settings).encode()
        with urllib.request.urlopen(f"http://{house.server.http}/v2/{path}", body) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    post("trace/setting", trace_level=["TIMESTAMPS"], trace_rate="2")
    assert post("models/plain/trace/setting", trace_rate="1")["trace_rate"] == "1"
    house.ask("plain", "a")
    house.ask("cached", "b", "c")
    house.expect(file=["a", "c"])
    told = "trace settings of plain: {'trace_level': ['TIMESTAMPS'], 'trace_rate': ['1'], "
    assert told in house.server.log.read_text()


@pytest.mark.contract("T-22", "T-23")
def test_files_can_be_summarised(house: House) -> None:
    """With what the tool of Triton's tests reads, for each model and over both endpoints."""
    house.change(trace_level="TIMESTAMPS", trace_rate="1")
    house.ask("ensemble", "e", value=2)
    house.ask_http("cached")
    wait_until(lambda: "cached" in str(house.files()))
    told = summary(json.loads((house.folder / "t.json").read_text()))
    assert {(model, one.requests) for (model, _), one in told.items()} == {
        ("ensemble", 1),
        ("plain", 3),
        ("bls", 1),
        ("cached", 1),
    }
    plain, cached = told["plain", 1], told["cached", 1]
    assert 0 < plain.compute_infer <= plain.handler
    assert 0 < cached.compute_infer <= cached.handler <= cached.http
    assert told["ensemble", 1].children == [told["plain", 1].name, told["bls", 1].name]


@pytest.mark.contract("T-22", "T-09", "T-10")
def test_averages_of_a_file_are_parts_of_the_time_at_each_endpoint(house: House) -> None:
    house.change(trace_level="TIMESTAMPS", trace_rate="1")
    house.ask("plain", "a", "b")
    house.ask_http("cached")
    house.ask_http("cached", value=2)
    wait_until(lambda: len(house.files().get("t.json", ())) == 4)
    told = summary(json.loads((house.folder / "t.json").read_text()))
    for model, endpoint, others in (("plain", "grpc", "http"), ("cached", "http", "grpc")):
        averages = told[model, 1].averages()
        assert told[model, 1].requests == 2
        assert 0 < averages["handler"] < averages[endpoint]
        assert averages["overhead"] >= 0
        assert averages[others] == 0


@pytest.mark.contract("T-08")
def test_the_exit_writes_what_was_gathered(tmp_path: Path) -> None:
    arguments = (*ON, "--trace-config=triton,log-frequency=5")
    with traced(tmp_path, *arguments, models=("plain",)) as house:
        house.ask("plain", "a")
        assert house.files() == {}
        assert house.server.stop() == 0
        assert house.files() == {"t.json.0": ["a"]}


def test_requests_go_on_where_no_trace_can_be_written(tmp_path: Path) -> None:
    with traced(tmp_path, *ON, models=("plain",)) as house:
        house.folder.rename(tmp_path / "away")
        house.ask("plain", "a")
        text = "is not writable: No such file or directory"
        wait_until(lambda: text in house.server.log.read_text())
        (tmp_path / "away").rename(house.folder)
        house.ask("plain", "d")
        house.expect(file=["d"])
        house.server.stop(signal.SIGKILL)  # which leaves a whole file
        assert house.files() == {"t.json": ["d"]}

"""The facade: what every frontend may ask, and when it is refused."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeLoader, make_request, marks, model_config, turns, until, write_model
from penstock.core.countdown import Countdown
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from penstock.models.lifecycle import ModelLifecycle
from penstock.models.repository import ModelRepository
from penstock.models.server import InferenceServer, ServerIdentity
from penstock.models.views import (
    Gauge,
    ModelIndexEntry,
    ModelMetadata,
    ServerMetadata,
    TensorMetadata,
)
from recorded import answers, needs_answers

ALL = "version_policy { all { } }"
EXITING = "^Server exiting$"


class House:
    """A server over a repository on disk, with a loader that does as it is told."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.loader = FakeLoader()
        repository = ModelRepository([path])
        self.lifecycle = ModelLifecycle(repository, self.loader)
        options = {"explicit_control": True, **options}
        self.server = InferenceServer(
            ServerIdentity("penstock", "1.2.3"), repository, self.lifecycle, **options
        )

    async def unload(self, name: str) -> None:
        """Unload, and wait until that is done."""
        await self.server.unload(name)
        await self.lifecycle.settled()

    async def started(self, *names: str) -> InferenceServer:
        await self.server.start(names)
        return self.server


@pytest.fixture
def house(tmp_path: Path) -> House:
    """With the models `m`, version 1, and `two`, versions 1 and 3, on disk."""
    write_model(tmp_path)
    write_model(tmp_path, "two", (1, 3), ALL)
    return House(tmp_path)


async def _index(server: InferenceServer, ready_only: bool = False) -> list[str]:
    """The lines of the index."""
    entries = await server.index(ready_only)
    return [f"{e.name} {e.version} {e.state} {e.reason}".strip() for e in entries]


# -- inference -----------------------------------------------------------------------------------


@pytest.mark.contract("R-07")
@pytest.mark.parametrize(("version", "answered"), [("", "3"), ("1", "1"), ("3", "3")])
async def test_a_request_is_answered_by_the_version_it_names(
    house: House, version: str, answered: str
) -> None:
    server = await house.started("two")
    stream = server.infer(make_request("a", model_name="two", model_version=version))
    assert stream.model_version == answered
    assert await marks(stream) == ["a"]


async def test_closing_the_stream_cancels_the_request(house: House) -> None:
    house.loader.held = True
    server = await house.started("m")
    (stream, other) = [server.infer(make_request(id)) for id in "ab"]
    await turns()
    other.close()
    house.loader.instances[0].release()
    assert await marks(stream) == ["a"]
    assert house.loader.instances[0].batches == [["a"]]
    (statistics,) = await server.statistics("m", "")
    assert (statistics.statistics.pending, statistics.statistics.in_flight) == (0, 0)


async def test_a_model_says_whether_it_is_decoupled(house: House) -> None:
    server = await house.started("m")
    assert not server.find("m", "").decoupled


async def _later(function: Callable[..., object], *arguments: object) -> object:
    """As the other methods of the facade, which are coroutines."""
    return function(*arguments)


ASKING: dict[str, Callable[[Any, str, str], Any]] = {
    "ModelInfer": lambda s, n, v: _later(s.infer, make_request(model_name=n, model_version=v)),
    "find": lambda s, n, v: _later(s.find, n, v),
    "ModelMetadata": lambda s, n, v: s.model_metadata(n, v),
    "ModelConfig": lambda s, n, v: s.model_config(n, v),
}
LOOKUPS = {
    ("nope", ""): (NotFoundError, "Request for unknown model: 'nope' is not found"),
    ("", ""): (NotFoundError, "Request for unknown model: '' is not found"),
    ("m", "7"): (NotFoundError, "Request for unknown model: 'm' version 7 is not found"),
    ("m", "0"): (NotFoundError, "Request for unknown model: 'm' version 0 is not found"),
    ("two", "1"): (
        UnavailableError,
        "Request for unknown model: 'two' version 1 is not at ready state",
    ),
    ("two", ""): (NotFoundError, "Request for unknown model: 'two' has no available versions"),
    ("m", "abc"): (
        InvalidRequestError,
        "failed to get model version from specified version string 'abc' (details: stol),"
        " version should be an integral value > 0",
    ),
}


@pytest.mark.parametrize("asked", ASKING)
@pytest.mark.parametrize(("name", "version"), LOOKUPS)
async def test_a_model_that_cannot_be_found_is_refused_alike_by_all(
    house: House, asked: str, name: str, version: str
) -> None:
    server = await house.started("m", "two")
    await server.unload("two")
    error, text = LOOKUPS[name, version]
    with pytest.raises(InferenceError) as refused:
        await ASKING[asked](server, name, version)
    assert (type(refused.value), refused.value.message) == (error, text)


@pytest.mark.contract("G-33", "G-32")
@needs_answers
@pytest.mark.parametrize(
    "case", ["model_metadata simple/7", "model_config nope/", "model_metadata simple/abc"]
)
async def test_a_lookup_is_refused_in_the_words_of_the_real_server(house: House, case: str) -> None:
    answer = answers("grpc_metadata.json")[case]
    write_model(house.path, "simple")
    server = await house.started("simple")
    with pytest.raises(InferenceError) as refused:
        await ASKING[answer["rpc"]](
            server, answer["request"]["name"], answer["request"].get("version", "")
        )
    assert refused.value.message == answer["message"]


@pytest.mark.contract("G-33")
@pytest.mark.parametrize("asked", ASKING)
async def test_nothing_is_found_before_the_server_has_started(house: House, asked: str) -> None:
    with pytest.raises(UnavailableError, match=r"^Server not ready$"):
        await ASKING[asked](house.server, "m", "")


# -- health --------------------------------------------------------------------------------------


@pytest.mark.contract("W-02")
@pytest.mark.contract("G-01", "W-03")
async def test_a_server_is_alive_before_it_is_ready(house: House) -> None:
    assert (await house.server.live(), await house.server.ready()) == (True, False)
    await house.started()
    assert (await house.server.live(), await house.server.ready()) == (True, True)


@pytest.mark.contract("G-02", "W-03")
async def test_a_server_is_ready_while_all_its_models_are(house: House) -> None:
    server = await house.started("m", "two")
    assert await server.ready()
    house.loader.instances[1].health = False
    assert not await server.ready()


@pytest.mark.contract("W-03")
async def test_a_model_that_failed_keeps_the_server_from_being_ready(house: House) -> None:
    house.loader.failures[3] = RuntimeError("broken")
    assert not await (await house.started("m", "two")).ready()


async def test_a_model_that_was_unloaded_does_not(house: House) -> None:
    server = await house.started("m", "two")
    await house.unload("two")
    assert await server.ready()


@pytest.mark.contract("W-04", "CL-09")
async def test_a_server_that_is_not_strict_is_ready_whatever_its_models_are(
    tmp_path: Path,
) -> None:
    write_model(tmp_path)
    house = House(tmp_path, strict_readiness=False)
    house.loader.failures[1] = RuntimeError("broken")
    assert not await house.server.ready()
    assert await (await house.started("m")).ready()


@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [("m", "", True), ("m", "1", True), ("m", "7", False), ("nope", "", False)],
)
async def test_a_model_is_ready_when_the_version_serves(
    house: House, name: str, version: str, ready: bool
) -> None:
    server = await house.started("m")
    assert await server.model_ready(name, version) is ready


async def test_a_model_whose_instance_is_not_healthy_is_not_ready(house: House) -> None:
    server = await house.started("m")
    house.loader.instances[0].health = False
    assert not await server.model_ready("m", "")


async def test_a_version_that_is_no_number_is_refused_even_where_false_would_do(
    house: House,
) -> None:
    server = await house.started("m")
    with pytest.raises(InvalidRequestError, match="version string 'abc'"):
        await server.model_ready("m", "abc")


# -- metadata ------------------------------------------------------------------------------------


async def test_a_server_says_who_it_is(house: House) -> None:
    metadata = await house.server.metadata()
    assert (metadata.name, metadata.version) == ("penstock", "1.2.3")


@pytest.mark.contract("G-05")
@needs_answers
def test_a_server_has_the_extensions_of_the_real_one_in_their_order() -> None:
    answer = answers("grpc_metadata.json")["server_metadata"]["response"]
    assert list(ServerMetadata("", "").extensions) == answer["extensions"]


@pytest.mark.parametrize(("version", "versions"), [("", ("1", "3")), ("3", ("3",))])
async def test_a_model_tells_its_tensors_and_versions(
    house: House, version: str, versions: tuple[str, ...]
) -> None:
    server = await house.started("two")
    assert await server.model_metadata("two", version) == ModelMetadata(
        "two",
        versions,
        "fake",
        (TensorMetadata("IN", "INT32", (-1, -1)),),
        (TensorMetadata("OUT", "INT32", (-1, -1)),),
    )


@pytest.mark.contract("AC-15")
async def test_a_model_shows_its_configuration(house: House) -> None:
    server = await house.started("m")
    assert await server.model_config("m", "") == model_config()


# -- statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("", "", [("m", "1"), ("two", "1"), ("two", "3")]),
        ("two", "", [("two", "1"), ("two", "3")]),
        ("two", "3", [("two", "3")]),
    ],
)
async def test_statistics_are_those_of_one_version_of_a_model_or_of_all(
    house: House, name: str, version: str, expected: list[tuple[str, str]]
) -> None:
    server = await house.started("two", "m")
    found = await server.statistics(name, version)
    assert [(statistics.name, statistics.version) for statistics in found] == expected


@needs_answers
@pytest.mark.parametrize("case", ["model_statistics simple/7", "model_statistics nope/"])
async def test_statistics_are_refused_in_the_words_of_the_real_server(
    house: House, case: str
) -> None:
    answer = answers("grpc_metadata.json")[case]
    write_model(house.path, "simple")
    server = await house.started("simple")
    with pytest.raises(InvalidRequestError) as refused:
        await server.statistics(answer["request"]["name"], answer["request"].get("version", ""))
    assert refused.value.message == answer["message"]


@pytest.mark.parametrize("version", ["", "1"])
async def test_statistics_of_an_unknown_model_are_refused_whatever_the_version(
    house: House, version: str
) -> None:
    server = await house.started("m")
    with pytest.raises(InvalidRequestError, match=r"^requested model 'nope' is not available$"):
        await server.statistics("nope", version)


async def test_a_model_that_was_unloaded_has_no_statistics(house: House) -> None:
    server = await house.started("m")
    await server.unload("m")
    with pytest.raises(InvalidRequestError, match=r"^requested model 'm' is not available$"):
        await server.statistics("m", "")


async def test_statistics_count_what_was_inferred(house: House) -> None:
    server = await house.started("m")
    await marks(server.infer(make_request(rows=3)))
    (snapshot,) = server.snapshot()
    assert snapshot.statistics.success.count == 1
    assert (snapshot.statistics.inference_count, snapshot.statistics.pending) == (3, 0)


async def test_gauges_are_those_of_every_model(house: House) -> None:
    server = await house.started("m", "two")
    for number, instance in enumerate(house.loader.instances):
        instance.numbers = {"load": float(number)}
    assert {(gauge.model, gauge.version) for gauge in server.gauges()} == {
        ("m", "1"),
        ("two", "1"),
        ("two", "3"),
    }
    assert all(isinstance(gauge, Gauge) for gauge in server.gauges())


# -- the index -----------------------------------------------------------------------------------


@pytest.mark.contract("G-11")
async def test_the_index_lists_models_that_were_never_loaded_by_name_alone(house: House) -> None:
    server = await house.started()
    assert await server.index() == (ModelIndexEntry("m"), ModelIndexEntry("two"))
    assert await server.index(ready_only=True) == ()


@pytest.mark.contract("X-16")
async def test_the_index_lists_every_version_with_its_state_and_reason(house: House) -> None:
    house.loader.failures[1] = RuntimeError("broken")
    server = await house.started("two")
    assert await _index(server) == [
        "m",
        "two 1 UNAVAILABLE Internal: RuntimeError: broken",
        "two 3 UNAVAILABLE unloaded",
    ]


async def test_a_model_that_stays_down_is_not_ready_in_the_index(house: House) -> None:
    server = await house.started("m")
    house.loader.instances[0].give_up()
    (line, *_) = await _index(server)
    assert line.startswith("m 1 UNAVAILABLE model 'm', instance ")
    assert await _index(server, ready_only=True) == []


async def test_the_index_can_be_limited_to_what_is_ready(house: House) -> None:
    server = await house.started("m", "two")
    await house.unload("m")
    assert await _index(server, ready_only=True) == ["two 1 READY", "two 3 READY"]
    assert (await _index(server))[0] == "m 1 UNAVAILABLE unloaded"


async def test_a_model_without_any_version_to_serve_is_not_listed_once_it_was_tried(
    house: House,
) -> None:
    """As the real server does it."""
    write_model(house.path, "m", config="version_policy { specific { versions: [7] } }")
    server = await house.started("m")
    assert await _index(server) == ["two"]


# -- control -------------------------------------------------------------------------------------


@pytest.mark.contract("M-02")
async def test_models_are_loaded_and_unloaded_by_name(house: House) -> None:
    server = await house.started()
    await server.load("m", {})
    assert await server.model_ready("m", "")
    await server.unload("m")
    assert not await server.model_ready("m", "")


@pytest.mark.contract("M-07")
@needs_answers
async def test_a_request_across_an_unload_is_answered_as_by_the_real_server(house: House) -> None:
    recorded = answers("model_control.json")
    write_model(house.path, "slow")
    house.loader.held = True
    server = await house.started("slow")
    stream = server.infer(make_request("a", model_name="slow"))
    await asyncio.wait_for(server.unload("slow"), 1)
    with pytest.raises(NotFoundError) as refused:
        server.infer(make_request("b", model_name="slow"))
    models = recorded["index while slow unloads"]["response"]["models"]
    assert refused.value.message == recorded["infer while unloading"]["message"]
    assert {"name": "slow", "version": "1", "state": "UNLOADING"} in models
    assert "slow 1 UNLOADING" in await _index(server)
    house.loader.instances[0].release()
    assert await marks(stream) == ["a"]


@pytest.mark.contract("X-20", "M-01")
@needs_answers
async def test_without_explicit_control_models_cannot_be_loaded_or_unloaded(
    tmp_path: Path,
) -> None:
    server = House(tmp_path, explicit_control=False).server
    text = answers("grpc_metadata.json")["load in mode none"]["message"]
    for control in (server.load("m", {}), server.unload("m")):
        with pytest.raises(UnavailableError) as refused:
            await control
        assert refused.value.message == text


async def test_files_of_a_load_stand_in_for_those_of_the_repository(house: House) -> None:
    server = await house.started()
    await server.load("m", {"file:7/model": b"", "config": '{"backend": "fake"}'})
    assert (await server.model_metadata("m", "")).versions == ("7",)
    await house.unload("m")


async def test_the_index_holds_what_the_repository_has(house: House) -> None:
    """As the real server has it: what came with a request is not listed."""
    server = await house.started("m")
    await server.load("made", {"file:7/model": b"", "config": '{"backend": "fake"}'})
    assert await _index(server) == ["m 1 READY", "two"]
    await house.unload("made")


async def test_a_model_of_two_repositories_is_unavailable(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_model(tmp_path / folder)
    repository = ModelRepository([tmp_path / "one", tmp_path / "two"])
    lifecycle = ModelLifecycle(repository, FakeLoader())
    server = InferenceServer(ServerIdentity("penstock", "1"), repository, lifecycle)
    await server.start(["m"])
    told = answers("options.json")["same name in two repositories, no namespacing"]
    (entry,) = await server.index()
    (expected,) = json.loads(told["body"]) if told else [{}]
    assert (entry.state, entry.reason) == (expected["state"], expected["reason"])


@pytest.mark.contract("M-15")
@needs_answers
@pytest.mark.parametrize("case", ["load unknown"])
async def test_a_model_that_is_not_there_is_refused_in_the_words_of_the_real_server(
    house: House, case: str
) -> None:
    answer = answers("model_control.json")[case]
    server = await house.started()
    with pytest.raises(InternalError) as refused:
        await server.load(answer["request"]["model_name"], {})
    assert refused.value.message == answer["message"]


@needs_answers
@pytest.mark.parametrize("case", ["unload unknown", "unload not loaded", "unload twice"])
async def test_what_does_not_serve_can_be_unloaded_as_in_the_real_server(
    house: House, case: str
) -> None:
    answer = answers("model_control.json")[case]
    server = await house.started()
    await server.unload(answer["request"]["model_name"])
    assert answer["code"] == "OK"


# -- start and end -------------------------------------------------------------------------------


@pytest.mark.contract("CL-07")
@pytest.mark.contract("M-04")
async def test_starting_tells_what_went_wrong_and_serves_the_rest(house: House) -> None:
    house.loader.failures[3] = RuntimeError("broken")
    failures = await house.server.start(["m", "nope", "two"])
    assert [type(failure) for failure in failures] == [InternalError, InvalidRequestError]
    assert await house.server.model_ready("m", "")


async def test_a_start_that_is_given_up_leaves_nothing_loaded(house: House) -> None:
    house.loader.gate.clear()
    starting = asyncio.ensure_future(house.server.start(["m"]))
    await until(lambda: house.loader.loading)
    starting.cancel()
    await asyncio.wait([starting])
    await house.server.stop(Countdown(1))
    assert (house.loader.given_up, house.loader.instances) == (1, [])


@pytest.mark.contract("W-06")
@pytest.mark.contract("G-01", "G-02")
async def test_a_server_that_is_about_to_stop_refuses_new_work(house: House) -> None:
    server = await house.started("m")
    server.refuse()
    for work in (
        server.live(),
        server.ready(),
        _later(server.infer, make_request()),
        server.load("m", {}),
        server.unload("m"),
    ):
        with pytest.raises(UnavailableError, match=EXITING):
            await work


@pytest.mark.contract("W-06")
async def test_stopping_finishes_what_is_in_flight(house: House) -> None:
    house.loader.held = True
    server = await house.started("m")
    stream = server.infer(make_request("a"))
    stopping = asyncio.ensure_future(server.stop(Countdown(5)))
    await turns()
    assert not stopping.done()
    house.loader.instances[0].release()
    assert await marks(stream) == ["a"]
    assert await asyncio.wait_for(stopping, 1)
    assert house.loader.instances[0].stopped == 1


async def test_stopping_does_not_wait_longer_than_it_may(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.loader.held = True
    server = await house.started("m")
    server.infer(make_request("a"))
    await turns()
    assert not await asyncio.wait_for(server.stop(Countdown(0.01)), 1)
    (instance,) = house.loader.instances
    assert instance.stopped == 1
    assert caplog.messages[-1] == "Exit timeout expired. Exiting immediately."
    instance.release()
    await turns()


async def test_a_server_without_models_stops_at_once(house: House) -> None:
    await asyncio.wait_for(house.server.stop(Countdown(60)), 1)


@pytest.mark.contract("W-07")
async def test_stopping_tells_every_second_what_it_waits_for(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.loader.held = True
    server = await house.started("m")
    server.infer(make_request("a"))
    with caplog.at_level(logging.INFO, "penstock.models"):
        await server.stop(Countdown(1.1))
    house.loader.instances[0].release()
    assert _told(caplog) == [
        "Waiting for in-flight requests to complete.",
        "Timeout 1: Found 1 model versions that have in-flight inferences",
        "Timeout 0: Found 1 model versions that have in-flight inferences",
        "Exit timeout expired. Exiting immediately.",
    ]
    await turns()


async def test_stopping_tells_which_models_are_still_there(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    server = await house.started("m")
    with caplog.at_level(logging.INFO, "penstock.models"):
        await server.stop(Countdown(30))
    assert _told(caplog) == [
        "Waiting for in-flight requests to complete.",
        "Timeout 30: Found 0 model versions that have in-flight inferences",
        "All models are stopped, unloading models",
        "Timeout 30: Found 1 live models and 0 in-flight non-inference requests",
        "Timeout 30: Found 0 live models and 0 in-flight non-inference requests",
    ]


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of the exit."""
    ours = ("penstock.models.server", "penstock.models.exit")
    return [r.message for r in caplog.records if r.name in ours]

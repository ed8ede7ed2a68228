"""Requests to a server, also for models that are not found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fakes import make_request, marks, turns, write_model
from harness.recorded import answers, needs_answers
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from server.house import House, later


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
    house.builder.held = True
    server = await house.started("m")
    (stream, other) = [server.infer(make_request(id)) for id in "ab"]
    await turns()
    other.close()
    house.builder.instances[0].release()
    assert await marks(stream) == ["a"]
    assert house.builder.instances[0].batches == [["a"]]
    (statistics,) = await server.statistics("m", "")
    assert (statistics.statistics.pending, statistics.statistics.in_flight) == (0, 0)


async def test_a_model_says_whether_it_is_decoupled(house: House) -> None:
    server = await house.started("m")
    assert not server.find("m", "").decoupled


ASKING: dict[str, Callable[[Any, str, str], Any]] = {
    "ModelInfer": lambda s, n, v: later(s.infer, make_request(model_name=n, model_version=v)),
    "find": lambda s, n, v: later(s.find, n, v),
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


@pytest.mark.contract("G-32")
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

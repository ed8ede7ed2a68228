"""A server that starts, and one that stops."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fakes import make_request, marks, turns, until
from penstock.core.errors import InternalError, InvalidRequestError, UnavailableError
from penstock.core.exit_deadline import ExitDeadline
from server.house import House, later

EXITING = "^Server exiting$"


@pytest.mark.contract("CL-07")
@pytest.mark.contract("M-04")
async def test_starting_tells_what_went_wrong_and_serves_the_rest(house: House) -> None:
    house.builder.failures[3] = RuntimeError("broken")
    failures = await house.server.start(["m", "nope", "two"])
    assert [type(failure) for failure in failures.values()] == [InternalError, InvalidRequestError]
    assert await house.server.model_ready("m", "")


async def test_a_start_that_is_given_up_leaves_nothing_loaded(house: House) -> None:
    house.builder.gate.clear()
    starting = asyncio.ensure_future(house.server.start(["m"]))
    await until(lambda: house.builder.loading)
    starting.cancel()
    await asyncio.wait([starting])
    await house.server.stop(ExitDeadline(1))
    assert (house.builder.given_up, house.builder.instances) == (1, [])


@pytest.mark.contract("W-06")
@pytest.mark.contract("G-01", "G-02")
async def test_a_server_that_is_about_to_stop_refuses_new_work(house: House) -> None:
    server = await house.started("m")
    server.refuse_new_work(ExitDeadline(5))
    for work in (
        server.live(),
        server.ready(),
        later(server.infer, make_request()),
        server.load("m", {}),
        server.unload("m"),
    ):
        with pytest.raises(UnavailableError, match=EXITING):
            await work


@pytest.mark.contract("W-06")
async def test_stopping_finishes_what_is_in_flight(house: House) -> None:
    house.builder.held = True
    server = await house.started("m")
    stream = server.infer(make_request("a"))
    stopping = asyncio.ensure_future(server.stop(ExitDeadline(5)))
    await turns()
    assert not stopping.done()
    house.builder.instances[0].release()
    assert await marks(stream) == ["a"]
    assert await asyncio.wait_for(stopping, 20)
    assert house.builder.instances[0].stopped == 1


async def test_stopping_does_not_wait_longer_than_it_may(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.builder.held = True
    server = await house.started("m")
    server.infer(make_request("a"))
    await turns()
    assert not await asyncio.wait_for(server.stop(ExitDeadline(0.01)), 20)
    (instance,) = house.builder.instances
    assert instance.stopped == 1
    assert caplog.messages[-1] == "Exit timeout expired. Exiting immediately."
    instance.release()
    await turns()


async def test_a_server_without_models_stops_at_once(house: House) -> None:
    await asyncio.wait_for(house.server.stop(ExitDeadline(60)), 20)


@pytest.mark.contract("W-07")
async def test_stopping_tells_every_second_what_it_waits_for(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.builder.held = True
    server = await house.started("m")
    server.infer(make_request("a"))
    with caplog.at_level(logging.INFO, "penstock"):
        await server.stop(ExitDeadline(1.1))
    house.builder.instances[0].release()
    assert _messages(caplog) == [
        "Waiting for in-flight requests to complete.",
        "Timeout 1: Found 1 model versions that have in-flight inferences",
        "In flight: model 'm' version 1: 1",
        "Timeout 0: Found 1 model versions that have in-flight inferences",
        "Exit timeout expired. Exiting immediately.",
    ]
    await turns()


async def test_the_exit_tells_what_frontends_wait_for_until_they_are_closed(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    server, deadline = await house.started("m"), ExitDeadline(30)
    deadline.waits_for("gRPC calls", lambda: 2)
    with caplog.at_level(logging.INFO, "penstock"):
        server.refuse_new_work(deadline)
        deadline.waits_for("gRPC calls", lambda: 0)
        await server.stop(deadline)
    assert _messages(caplog)[:4] == [
        "Waiting for in-flight requests to complete.",
        "Timeout 30: Found 0 model versions that have in-flight inferences",
        "In flight: gRPC calls: 2",
        "All models are stopped, unloading models",
    ]


async def test_only_requests_that_were_cut_off_count(house: House) -> None:
    house.builder.held = True
    server, deadline = await house.started("m"), ExitDeadline(0.01)
    server.infer(make_request("a"))
    await turns()
    assert not await asyncio.wait_for(server.stop(deadline), 20)
    assert deadline.cut_off == 1
    house.builder.instances[0].release()
    await turns()


async def test_stopping_tells_which_models_are_still_there(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    server = await house.started("m")
    with caplog.at_level(logging.INFO, "penstock"):
        await server.stop(ExitDeadline(30))
    assert _messages(caplog) == [
        "Waiting for in-flight requests to complete.",
        "Timeout 30: Found 0 model versions that have in-flight inferences",
        "All models are stopped, unloading models",
        "Timeout 30: Found 1 live models and 0 in-flight non-inference requests",
        "Timeout 30: Found 0 live models and 0 in-flight non-inference requests",
    ]


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log messages of the exit."""
    ours = ("penstock.server.exit", "penstock.server.shutdown_log")
    return [r.message for r in caplog.records if r.name in ours]

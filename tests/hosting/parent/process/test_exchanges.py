"""Exchanges over HTTP with the application of a model in a process, as the server sees them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest
import pytest_asyncio

from hosting.puppets import PATIENCE, Puppets, eventually, everything
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    RequestCancelledError,
    UnavailableError,
    UnsupportedError,
)
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import ExchangePart, InferenceRequest, RequestScope
from penstock.hosting.link.link import LARGEST_HEAD
from penstock.hosting.parent.process import ProcessInstance
from penstock.inflight.inference import Inference

TALKER = "hosted.talker:Talker"


@pytest_asyncio.fixture
async def talker(puppets: Puppets) -> ProcessInstance:
    return await puppets.start(target=TALKER)


def begin(
    puppets: Puppets, instance: ProcessInstance, path: str, query: str = "", **more: Any
) -> Inference:
    """Have the instance begin an exchange."""
    exchange = HttpExchange("POST", path, query, **more)
    request = InferenceRequest("puppet", id="7", exchange=exchange, scope=RequestScope())
    (inference,), _ = puppets.tell(instance, request)
    return inference


async def next_part(inference: Inference) -> ExchangePart:
    async with asyncio.timeout(PATIENCE):
        part = await anext(inference.stream)
    assert isinstance(part, ExchangePart)
    return part


async def first_piece(inference: Inference) -> bytes:
    """Read the head, and the first piece of the body."""
    assert (await next_part(inference)).head is not None
    return (await next_part(inference)).body


async def whole(inference: Inference) -> tuple[int, bytes, InferenceError | None]:
    """Status, body and the error of the last part."""
    async with asyncio.timeout(PATIENCE):
        parts = [one async for one in inference.stream if isinstance(one, ExchangePart)]
    head = parts[0].head
    assert head is not None
    return head.status, b"".join(part.body for part in parts), parts[-1].error


async def state(puppets: Puppets, instance: ProcessInstance) -> dict[str, int]:
    _, body, _ = await whole(begin(puppets, instance, "/state"))
    return dict(json.loads(body))


@pytest.mark.slow
async def test_application_gets_the_request_as_it_is(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    headers = (("x-one", "1"), ("x-one", "2"))
    inference = begin(puppets, talker, "/echo", "a=b", headers=headers, body="é".encode())
    status, body, error = await whole(inference)
    assert (status, error) == (200, None)
    assert json.loads(body) == ["POST", "a=b", [["x-one", "1"], ["x-one", "2"]], "é", "7"]


@pytest.mark.slow
async def test_serial_instance_answers_exchanges_beside_its_batches(puppets: Puppets) -> None:
    instance = await puppets.start(target=TALKER, serial=True)
    waiting = begin(puppets, instance, "/wait")
    await first_piece(waiting)
    assert (await whole(begin(puppets, instance, "/infer")))[1] == b"[[4, 2]]"
    waiting.stream.close()


@pytest.mark.slow
async def test_large_body_comes_in_pieces_and_whole(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    inference = begin(puppets, talker, "/large", "1000000")
    async with asyncio.timeout(PATIENCE):
        sizes = [one.size async for one in inference.stream]
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= 16 * 1024


@pytest.mark.slow
async def test_application_waits_for_a_slow_reader(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    """The relay holds 32 KiB at most, and all of it arrives once it is read."""
    inference = begin(puppets, talker, "/count", "1000")
    await first_piece(inference)
    sent = 0

    async def settled() -> bool:
        nonlocal sent
        before, sent = sent, (await state(puppets, talker))["sent"]
        return before == sent > 0

    await eventually(settled)
    assert sent <= 32
    async with asyncio.timeout(PATIENCE):
        assert sum([one.size async for one in inference.stream]) == 999_000


@pytest.mark.slow
async def test_client_that_leaves_is_told_to_the_application(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    inference = begin(puppets, talker, "/wait")
    assert await first_piece(inference) == b"first"
    inference.stream.close()

    async def told() -> bool:
        return (await state(puppets, talker))["left"] == 1

    await eventually(told)


@pytest.mark.slow
async def test_application_that_goes_on_without_a_client_is_ended(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    inference = begin(puppets, talker, "/stubborn")
    await first_piece(inference)
    inference.stream.close()

    async def ended() -> bool:
        return (await state(puppets, talker))["cancelled"] == 1

    await eventually(ended)


@pytest.mark.slow
async def test_death_in_the_middle_ends_the_exchange(puppets: Puppets) -> None:
    instance = await puppets.start(target=TALKER)
    inference = begin(puppets, instance, "/wait")
    assert await first_piece(inference) == b"first"
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)
    with pytest.raises(UnavailableError, match="model process"):
        await next_part(inference)
    await eventually(lambda: instance.available)
    assert (await whole(begin(puppets, instance, "/state")))[0] == 200


@pytest.mark.slow
async def test_failing_application_is_an_error(puppets: Puppets, talker: ProcessInstance) -> None:
    with pytest.raises(InternalError, match="KeyError: 'lost'"):
        await whole(begin(puppets, talker, "/fail"))


@pytest.mark.slow
async def test_application_that_stops_short_is_an_error(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    inference = begin(puppets, talker, "/stop")
    await first_piece(inference)
    with pytest.raises(InternalError, match="ended before its answer"):
        await next_part(inference)


@pytest.mark.slow
async def test_refusal_of_the_application_counts_as_a_failure(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    status, body, error = await whole(begin(puppets, talker, "/refuse"))
    assert (status, body) == (400, b'{"error": {}}')
    assert isinstance(error, InvalidRequestError)
    assert puppets.statistics.fail.count == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "why"),
    [
        ("none", "model 'puppet' has no OpenAI routes"),
        ("broken", "OpenAI routes of 'puppet' are off: its kit does not fit"),
    ],
)
async def test_model_without_an_application_says_why(puppets: Puppets, app: str, why: str) -> None:
    instance = await puppets.start(target=TALKER, app=app)
    with pytest.raises((InvalidRequestError, UnsupportedError), match=why):
        await whole(begin(puppets, instance, "/echo"))


@pytest.mark.slow
async def test_tokens_of_an_exchange_are_reported(puppets: Puppets) -> None:
    instance = await puppets.start(target=TALKER, usage=True)
    inference = begin(puppets, instance, "/usage")
    told: list[tuple[int, int, int]] = []
    inference.on_usage = lambda *tokens: told.append(tokens)
    await whole(inference)
    assert told == [(7, 2, 3)]


@pytest.mark.slow
async def test_unload_ends_an_exchange(puppets: Puppets) -> None:
    instance = await puppets.start(target=TALKER)
    inference = begin(puppets, instance, "/wait")
    await first_piece(inference)
    await instance.stop()
    with pytest.raises((UnavailableError, RequestCancelledError)):
        await next_part(inference)


@pytest.mark.slow
async def test_headers_too_large_for_the_link_end_the_exchange(
    puppets: Puppets, talker: ProcessInstance
) -> None:
    inference = begin(puppets, talker, "/heavy", str(LARGEST_HEAD + 1))
    with pytest.raises(InternalError, match="exceeds the limit"):
        await everything(inference)
    assert await state(puppets, talker)

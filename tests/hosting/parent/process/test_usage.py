"""Reports of a request's tokens, from the backend in a model process to the inference."""

from __future__ import annotations

import asyncio

import pytest

from hosting.puppets import Puppets, everything


@pytest.mark.slow
async def test_tokens_are_reported_before_the_last_response(puppets: Puppets) -> None:
    instance = await puppets.start(usage=True)
    inference = puppets.begin(instance, "meter")
    reported: list[tuple[int, int, int]] = []
    inference.on_usage = lambda *tokens: reported.append(tokens)
    (response,) = await everything(inference)
    assert response.parameters == {"asked": True}
    assert reported == [(7, 3, 1), (7, 3, 20)]


@pytest.mark.slow
async def test_tokens_of_a_cancelled_request_are_reported_after_its_end(puppets: Puppets) -> None:
    instance = await puppets.start(usage=True)
    inference = puppets.begin(instance, "meter_until_left")
    reported: asyncio.Queue[tuple[int, int, int]] = asyncio.Queue()
    inference.on_usage = lambda *tokens: reported.put_nowait(tokens)
    assert await reported.get() == (7, 3, 1)
    inference.stream.close()
    assert await reported.get() == (7, 3, 9)


@pytest.mark.slow
async def test_reports_that_nobody_waits_for_are_dropped(puppets: Puppets) -> None:
    instance = await puppets.start(usage=True)
    assert (await puppets.ask(instance, "meter")).parameters == {"asked": True}


@pytest.mark.slow
async def test_process_that_is_not_asked_to_reports_nothing(puppets: Puppets) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, "meter")
    reported: list[tuple[int, int, int]] = []
    inference.on_usage = lambda *tokens: reported.append(tokens)
    (response,) = await everything(inference)
    assert (response.parameters, reported) == ({"asked": False}, [])

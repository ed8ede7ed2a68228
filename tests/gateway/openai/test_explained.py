"""Requests to OpenAI's API whose clients ask where the time went."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from fakes import InstallBackend
from gateway.openai.speaking import CHAT, OPENAI, Speaker, speaking
from gateway.serving import LOCAL

ASKED = {"penstock-explain": "1", "x-request-id": "mine"}


@pytest_asyncio.fixture
async def client(
    tmp_path: Path, install_backend: InstallBackend
) -> AsyncIterator[httpx.AsyncClient]:
    async with speaking(tmp_path, install_backend, OPENAI, LOCAL) as (_, client):
        yield client


@pytest.mark.parametrize(("do", "status"), [("whole", 200), ("refuse", 422), ("full", 429)])
async def test_headers_explain_a_whole_answer(
    client: httpx.AsyncClient, do: str, status: int
) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": do}, headers=ASKED)
    told = json.loads(answer.headers["penstock-explain"])
    assert (answer.status_code, told["request_id"]) == (status, "mine")
    assert [one["model"] for one in told["requests"]] == ["m"]
    assert ("error" in told["requests"][0]) == (do != "whole")


async def test_an_answer_in_pieces_is_held_until_it_can_be_explained(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": "large"}, headers=ASKED)
    assert len(answer.content) == 500_000
    assert "penstock-explain" in answer.headers


async def test_numbers_of_a_generation_are_headers(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": "noted"}, headers=ASKED)
    assert answer.headers["x-generated-tokens"] == "7"
    assert answer.headers["x-time-to-first-token"] == "1.500"


@pytest.mark.parametrize("do", ["stream", "break_off", "at_once"])
async def test_last_event_explains_a_stream(client: httpx.AsyncClient, do: str) -> None:
    Speaker.go_on.set()
    answer = await client.post(CHAT, json={"model": "m", "do": do}, headers=ASKED)
    *_, before, last, rest = answer.text.split("\n\n")
    kind, _, text = last.partition("\ndata: ")
    assert (kind, rest) == ("event: penstock-explain", "")
    assert before == "data: [DONE]" or before.startswith('data: {"error":')
    told = json.loads(text)
    assert told["request_id"] == "mine"
    assert ("error" in told) == (do == "break_off")


async def test_nobody_else_gets_an_explanation(client: httpx.AsyncClient) -> None:
    Speaker.go_on.set()
    whole = await client.post(CHAT, json={"model": "m"})
    stream = await client.post(CHAT, json={"model": "m", "do": "stream"})
    assert "penstock-explain" not in whole.headers
    assert "penstock-explain" not in stream.text

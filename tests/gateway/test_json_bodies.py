"""What is decoded on the event loop, and what in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.serving import received_call
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.json.text import is_large
from penstock.gateway.json_bodies import JsonBodies


@pytest.fixture
def bodies() -> Iterator[JsonBodies]:
    helper = JsonHelper()
    yield JsonBodies(1 << 20, helper)
    helper.close()


async def test_of_texts_that_come_at_once_few_are_decoded_on_the_loop(bodies: JsonBodies) -> None:
    """In the next turn it is the same again."""
    text = b" " * 60_000
    assert [bodies.takes(text) for _ in range(4)] == [True, True, False, False]
    await asyncio.sleep(0)
    assert bodies.takes(text)


async def test_texts_that_come_at_once_are_all_decoded(bodies: JsonBodies) -> None:
    """One after another, in turns of the loop."""
    text, call = b"[1" + b" " * 60_000 + b"]", received_call(b"")
    assert await asyncio.gather(*[bodies.decode(text, len, call) for _ in range(9)]) == [1] * 9


async def test_short_texts_are_decoded_on_the_loop_whatever_comes(bodies: JsonBodies) -> None:
    assert all(bodies.takes(b" " * 4096) for _ in range(1000))


@pytest.mark.parametrize("item", [b"[1],", b"{},", b"1,1,1,1,1,"])
def test_text_of_many_values_is_large(item: bytes) -> None:
    assert is_large(b"[" + item * 8000 + b"1]")
    assert not is_large(b"[" + item * 1000 + b" " * 20_000 + b"1]")

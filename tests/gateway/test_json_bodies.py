"""What is decoded on the event loop, and what in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.gateway.json.text import is_large, skim
from penstock.gateway.json.thread import JsonThread
from penstock.gateway.json_bodies import JsonBodies


@pytest.fixture
def bodies() -> Iterator[JsonBodies]:
    thread = JsonThread()
    yield JsonBodies(1 << 20, thread)
    thread.close()


async def test_of_texts_that_come_at_once_few_are_decoded_on_the_loop(bodies: JsonBodies) -> None:
    """In the next turn it is the same again."""
    text = b" " * 60_000
    assert [bodies.takes(text) for _ in range(4)] == [True, True, False, False]
    await asyncio.sleep(0)
    assert bodies.takes(text)


async def test_short_texts_are_decoded_on_the_loop_whatever_comes(bodies: JsonBodies) -> None:
    assert all(bodies.takes(b" " * 4096) for _ in range(1000))


@pytest.mark.parametrize("item", [b"[1],", b"{},"])
def test_text_of_many_lists_or_objects_is_large(item: bytes) -> None:
    assert is_large(b"[" + item * 8000 + b"1]")
    assert not is_large(b"[" + item * 1000 + b" " * 20_000 + b"1]")


def test_of_a_large_text_that_is_skimmed_no_long_value_is_kept() -> None:
    text = b'{"a":"%b","model":"m","b":[%b1]}' % (b"x" * (1 << 20), b"1," * (1 << 20))
    read = skim(text)
    assert read["model"] == "m"
    assert len(read["a"]) < 1 << 19
    assert len(read["b"]) < 1 << 19

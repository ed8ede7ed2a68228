"""Slow readers and floods of requests in one `ModelStreamInfer` call."""

from __future__ import annotations

import asyncio

import pytest

from penstock.rpc import stream_writer
from rpc.infer_stream.talk import Talk
from rpc.manual import ask, number, numbers, turns

# -- back-pressure ---------------------------------------------------------------------------------


@pytest.mark.contract("N-03")
async def test_slow_reader_holds_back_every_request_of_its_stream(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("many", "b"))
    talk.call.may_write.clear()
    await talk.answer("a", *map(number, range(10)))
    await talk.answer("b", *map(number, range(10)))
    backlogs = [stream.backlog for stream in talk.server.streams.values()]
    assert backlogs == [9, 10]  # one response is in the writer's hands
    talk.call.may_write.set()
    await turns(60)
    assert len(talk.responses) == 20


async def test_response_released_by_another_is_written_after_it(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("many", "b"))
    stream = talk.server.streams["a"]
    rest = iter([*map(number, range(2, 9)), number(9, final=True)])

    def went(_: int) -> None:
        if (response := next(rest, None)) is not None:
            stream.send(response)

    stream.connect(lambda: None, went)
    talk.call.may_write.clear()
    await talk.answer("b", number(0))
    await talk.answer("a", number(1))
    talk.call.may_write.set()
    await turns(60)
    assert numbers(talk.responses) == [("b", 0), *(("a", value) for value in range(1, 10))]


async def test_slow_reader_does_not_hold_back_requests(talk: Talk) -> None:
    talk.call.may_write.clear()
    await talk.say(ask("many", "a"))
    await talk.answer("a", number(1))
    await talk.say(ask("many", "b"))
    assert set(talk.server.streams) == {"a", "b"}


# -- many requests, many models --------------------------------------------------------------------


async def test_flood_of_one_model_delays_no_other(talk: Talk) -> None:
    """Models take turns: the queue of one does not delay the others."""
    await talk.say(*(ask("many", f"flood{n}") for n in range(50)), ask("many2", "calm"))
    talk.call.may_write.clear()
    for n in range(50):
        await talk.answer(f"flood{n}", number(n), number(n))
    await talk.answer("calm", number(7))
    talk.call.may_write.set()
    await turns(200)
    order = [response.infer_response.id for response in talk.responses]
    assert len(order) == 101
    assert order.index("calm") <= 2


@pytest.mark.contract("GP-24", "SEC-10")
async def test_reading_stops_while_too_much_is_being_answered(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_writer, "MOST_OPEN", 3)
    await talk.say(*(ask("once", str(n)) for n in range(5)))
    assert len(talk.server.requests) == 3
    await talk.answer("0", number(0, final=True))
    assert len(talk.server.requests) == 4
    for n in range(1, 5):
        await talk.answer(str(n), number(n, final=True))
    assert [value for _, value in numbers(talk.responses)] == list(range(5))


async def test_reading_stops_while_large_requests_are_being_answered(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_writer, "MOST_BYTES", 1000)
    large = ask("once", "large")
    large.inputs.add(name="IN", datatype="UINT8", shape=[1000])
    large.raw_input_contents.append(bytes(1000))
    await talk.say(large, ask("once", "next"))
    assert [request.id for request in talk.server.requests] == ["large"]
    await talk.answer("large", number(1, final=True))
    assert [request.id for request in talk.server.requests] == ["large", "next"]


async def test_many_requests_need_no_tasks_of_their_own(talk: Talk) -> None:
    before = len(asyncio.all_tasks())
    await talk.say(*(ask("many", str(n)) for n in range(1000)))
    await turns(1100)
    assert len(talk.server.requests) == 1000
    assert len(asyncio.all_tasks()) == before

"""The interval between responses: what passes, what waits, and what is pushed again."""

from __future__ import annotations

import asyncio

import pytest

from fakes import in_virtual_time
from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import ConfigError
from penstock_backends.language_model import (
    Answer,
    Delivery,
    GenerationRequest,
    StreamInterval,
    WantedOutputs,
    stream_interval,
)

_LONG = 3600.0


class _Pushed:
    def __init__(self) -> None:
        self.happened = asyncio.Event()

    def push(self) -> None:
        self.happened.set()


def _delivery(interval: StreamInterval, *, stream: bool = True, merge: bool = True) -> Delivery:
    answer = Answer(GenerationRequest("", stream, False, None, WantedOutputs()), 1)
    return Delivery(answer, lambda: None, merge=merge, interval=interval)


def _texts(delivery: Delivery) -> list[str]:
    ready = delivery.stream.take_ready()
    return [response.outputs["text_output"].elements()[0].decode() for response in ready]


async def _generate(delivery: Delivery, tokens: str) -> list[str]:
    """Push one token after the other, each in an iteration of the loop; what is read meanwhile."""
    texts = []
    for token in tokens:
        delivery.answer.candidates[0].add(token)
        delivery.push()
        texts += _texts(delivery)
        await asyncio.sleep(0)
    return texts


async def test_what_comes_in_one_iteration_passes_together() -> None:
    interval = StreamInterval(_LONG)
    assert [interval.passes(_Pushed()) for _ in range(3)] == [True, True, True]
    await asyncio.sleep(0)
    assert [interval.passes(_Pushed()) for _ in range(3)] == [False, False, False]


@in_virtual_time
async def test_what_waits_is_pushed_when_the_interval_is_over() -> None:
    interval, pushed = StreamInterval(0.01), _Pushed()
    assert interval.passes(pushed)
    await asyncio.sleep(0)
    assert not interval.passes(pushed)
    await pushed.happened.wait()
    assert interval.passes(pushed)


async def test_no_interval_lets_everything_pass() -> None:
    interval = StreamInterval()
    for _ in range(3):
        assert interval.passes(_Pushed())
        await asyncio.sleep(0)


async def test_the_first_two_tokens_and_the_end_do_not_wait() -> None:
    delivery = _delivery(StreamInterval(_LONG))
    assert await _generate(delivery, "abcdef") == ["a", "b", "c"]  # the first interval begins at c
    delivery.answer.candidates[0].finish_reason = "length"
    delivery.push()
    assert _texts(delivery) == ["def"]


@in_virtual_time
async def test_tokens_of_an_interval_leave_together() -> None:
    delivery = _delivery(StreamInterval(0.01))
    assert await _generate(delivery, "abcdef") == ["a", "b", "c"]
    response = await anext(delivery.stream)
    assert response.outputs["text_output"].elements()[0] == b"def"


def _step(token: str, *deliveries: Delivery) -> None:
    """A step of an engine: a token for each request."""
    for delivery in deliveries:
        delivery.answer.candidates[0].add(token)
        delivery.push()


@in_virtual_time
async def test_a_reader_that_is_late_does_not_hold_up_others() -> None:
    interval = StreamInterval(0.004)
    late, other = _delivery(interval), _delivery(interval)
    for delivery in (late, other):
        await _generate(delivery, "ab")
    _step("c", late, other)
    assert _texts(other) == ["c"]
    await asyncio.sleep(0.005)
    _step("d", late, other)
    assert _texts(other) == ["d"]
    await asyncio.sleep(0.005)
    assert (_texts(late), _texts(late)) == (["c"], ["d"])
    await asyncio.sleep(0)
    _step("e", late, other)
    assert (_texts(late), _texts(other)) == (["e"], ["e"])


@in_virtual_time
async def test_a_reader_that_is_late_waits_for_the_interval_as_others_do() -> None:
    delivery = _delivery(StreamInterval(0.004))
    await _generate(delivery, "ab")
    _step("c", delivery)
    await asyncio.sleep(0.001)
    _step("d", delivery)
    assert _texts(delivery) == ["c"]
    assert _texts(delivery) == []
    await asyncio.sleep(0.004)
    assert _texts(delivery) == ["d"]


async def test_one_response_a_token_where_that_is_asked_for() -> None:
    assert await _generate(_delivery(StreamInterval(_LONG), merge=False), "abcde") == list("abcde")


@in_virtual_time
async def test_a_cancelled_request_is_not_pushed_again() -> None:
    delivery = _delivery(StreamInterval(0.01))
    await _generate(delivery, "abcd")
    delivery.stream.close()
    await asyncio.sleep(0.02)
    assert _texts(delivery) == []


@pytest.mark.parametrize(("text", "opens"), [("0", True), ("1000", False), ("", False)])
@in_virtual_time
async def test_the_parameter_of_the_model(text: str, opens: bool) -> None:
    parameters = {"penstock.stream_interval_ms": Parameter(text)} if text else {}
    interval = stream_interval(ModelConfig(name="m", parameters=parameters))
    assert interval.open
    await asyncio.sleep(0)
    assert interval.open is opens


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "1e9"])
def test_a_wrong_parameter_is_refused(text: str) -> None:
    config = ModelConfig(name="m", parameters={"penstock.stream_interval_ms": Parameter(text)})
    with pytest.raises(ConfigError, match=f"from 0 to 10000, not '{text}'"):
        stream_interval(config)

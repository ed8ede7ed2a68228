"""`AliasModel` and its shadow, with models of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from fakes.loops import in_virtual_time
from models.releases.fake_models import Config, FakeModel, Models, answered, request
from penstock.core.errors import (
    InferenceError,
    InternalError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.http_exchange import HttpHead
from penstock.core.request import (
    Draw,
    ExchangePart,
    InferenceResponse,
    RequestScope,
    TextResponse,
)
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.models.releases.alias_model import AliasModel
from penstock.models.releases.definition import parse_alias
from penstock.models.releases.shadow import Outcome, ShadowTraffic


@pytest.fixture
def models() -> Models:
    return Models()


async def _target(alias: AliasModel, **fields: Any) -> object:
    return (await answered(alias, **fields))[0].parameters["penstock_target"]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


# -- targets ------------------------------------------------------------------------------------


async def test_texts_name_their_target(models: Models) -> None:
    def say(stream: ResponseStream) -> None:
        stream.send(TextResponse(b"a"))
        stream.send(TextResponse(b"b", final=True))

    models.models["old"] = FakeModel(1, say)
    answers = await answered(models.alias())
    assert [one.parameters for one in answers] == [{"penstock_target": "old"}] * 2
    assert [one.outputs["text_output"].elements()[0] for one in answers] == [b"a", b"b"]


async def test_an_application_answers_with_the_target_in_a_header(models: Models) -> None:
    def say(stream: ResponseStream) -> None:
        stream.send(ExchangePart(head=HttpHead(200, (("content-type", "text/plain"),))))
        stream.send(ExchangePart(final=True, body=b"hello"))

    models.models["old"] = FakeModel(1, say)
    parts = [one async for one in models.alias().exchange(request())]
    assert all(isinstance(part, ExchangePart) for part in parts)
    head, body = (cast(ExchangePart, part) for part in parts)
    assert head.head is not None
    assert head.head.headers == (("content-type", "text/plain"), ("penstock-target", "old"))
    assert (body.head, body.body) == (None, b"hello")


async def test_a_target_is_looked_up_once(models: Models) -> None:
    await answered(models.alias())
    assert models.asked == {"old": 1}


async def test_the_share_of_what_is_away_goes_to_the_others(models: Models) -> None:
    alias = models.alias(0)
    models.away.add("new")
    with pytest.raises(UnavailableError, match="none of 'old', 'new' serves"):
        await answered(alias)
    alias = models.alias(1)
    assert {await _target(alias) for _ in range(20)} == {"old"}


@pytest.mark.parametrize("name", ["x-user", "X-User"])
async def test_a_header_keeps_requests_together(models: Models, name: str) -> None:
    alias = models.alias(50, sticky=f"header {name}")
    users = [str(number) for number in range(30)]

    async def of(user: str) -> object:
        return await _target(alias, scope=RequestScope(headers={"x-user": user}))

    first = [await of(user) for user in users]
    assert [await of(user) for user in users] == first
    assert {*first} == {"old", "new"}
    without = {await _target(alias, scope=RequestScope(headers={})) for _ in range(60)}
    assert without == {"old", "new"}


async def test_one_draw_is_for_all_that_belongs_to_arequest(models: Models) -> None:
    outer, inner = models.alias(50), models.alias(50)
    inner.alias = parse_alias(
        "inner",
        {
            "targets": [{"model": "old", "weight": 50}, {"model": "new", "weight": 50}],
            "sticky": "parameter user",
        },
    )
    inner.follow(inner.alias)
    for number in range(40):
        scope = RequestScope()
        side = await _target(outer, scope=scope)
        parts = {
            await _target(inner, scope=scope.part(), parameters={"user": number}) for _ in range(3)
        }
        assert parts == {side}
        again = parse_alias("alias", {"targets": [{"model": "old"}, {"model": "new", "weight": 0}]})
        outer.follow(again)  # a change in the midst of a request is for the next one
        assert await _target(outer, scope=scope.part()) == side
        outer.follow(models.alias(50).alias)


async def test_a_sequence_keeps_its_side(models: Models) -> None:
    alias = models.alias(50, sticky="sequence")
    sides = []
    for step in range(3):
        marks = {"sequence_start": step == 0, "sequence_end": step == 2}
        scope = RequestScope()
        sides.append(await _target(alias, correlation_id=9, scope=scope, **marks))
        assert scope.draw is not None
        assert scope.draw.sides == {"alias": sides[0]}
    assert len({*sides}) == 1


async def test_what_clients_cancel_is_not_counted(models: Models) -> None:
    def fail(error: InferenceError) -> Callable[[ResponseStream], None]:
        return lambda stream: stream.fail(error)

    alias = models.alias(100)
    for error in (InternalError("bad"), RequestCancelledError(), UnavailableError("down")):
        models.models["old"] = FakeModel(1, fail(error))
        with pytest.raises(InferenceError):
            await answered(alias)
    window = alias.windows["old"]
    assert (window.requests, window.failed) == (2, 2)


# -- shadows ------------------------------------------------------------------------------------


def _shadow(alias: AliasModel) -> ShadowTraffic:
    assert alias.shadow is not None
    return alias.shadow


def _shadowed(models: Models, **fields: Any) -> AliasModel:
    return models.alias(shadow={"model": "dark", **fields})


async def test_copies_are_compared_and_no_client_sees_them(models: Models) -> None:
    alias = _shadowed(models, compare={"contents": True})
    (answer,) = await answered(alias, id="seven")
    assert answer.outputs["Y"].numpy()[0] == 1
    counts = _shadow(alias).counts
    await _until(lambda: bool(counts.outcomes))
    assert counts.outcomes == {Outcome.DIFFERENT: 1}
    (differing,) = counts.differing
    assert (differing.id, differing.target) == ("seven", "old")
    assert differing.difference.contents == ("1.0", "2.0")
    assert (counts.first.count, counts.second.count) == (1, 1)
    models.models["dark"].number = 1
    await answered(alias)
    await _until(lambda: counts.outcomes[Outcome.EQUAL] == 1)
    await _shadow(alias).close()


async def test_a_copy_that_fails_is_counted(models: Models) -> None:
    alias = _shadowed(models)
    models.models["dark"] = FakeModel(1, lambda stream: stream.fail(InternalError("no")))
    await answered(alias)
    counts = _shadow(alias).counts
    await _until(lambda: counts.outcomes[Outcome.FAILED] == 1)
    models.away.add("dark")
    await answered(alias)
    await _until(lambda: counts.outcomes[Outcome.FAILED] == 2)


@in_virtual_time
async def test_a_copy_goes_after_the_answer_and_one_at_a_time(models: Models) -> None:
    alias, dark = _shadowed(models), models.models["dark"]
    dark.holds = True
    models.models["old"].holds = True
    streams = [alias.infer(request()) for _ in range(3)]
    await asyncio.sleep(0.005)
    assert not dark.requests
    models.models["old"].release()
    for stream in streams:
        assert [one.final async for one in stream] == [True]
    await _until(lambda: len(dark.requests) == 1)
    await asyncio.sleep(0.005)
    assert len(dark.requests) == 1
    dark.release()
    await _until(lambda: _shadow(alias).counts.outcomes.total() == 3)


async def test_the_queue_of_copies_is_bounded(models: Models) -> None:
    alias, dark = _shadowed(models), models.models["dark"]
    dark.holds = True
    for _ in range(200):
        await answered(alias)
    outcomes = _shadow(alias).counts.outcomes
    assert outcomes == {Outcome.DROPPED: 200 - 64}
    await _shadow(alias).close()
    assert outcomes == {Outcome.DROPPED: 200}
    assert all(stream.ended for stream in dark.held)


@in_virtual_time
async def test_a_copy_waits_while_others_wait_for_its_model(models: Models) -> None:
    alias, dark = _shadowed(models), models.models["dark"]
    dark.statistics.pending = 1
    await answered(alias)
    await asyncio.sleep(0.03)
    assert not dark.requests
    dark.statistics.pending = 0
    await _until(lambda: _shadow(alias).counts.outcomes.total() == 1)


@in_virtual_time
async def test_copies_give_way_while_the_machine_is_full_but_for_one_a_second(
    models: Models,
) -> None:
    models.utilization = 0.95
    alias, dark = _shadowed(models), models.models["dark"]
    for _ in range(70):
        await answered(alias)
    outcomes = _shadow(alias).counts.outcomes
    await asyncio.sleep(4.5)
    assert outcomes == {Outcome.DROPPED: 6, Outcome.DIFFERENT: len(dark.requests)}
    assert len(dark.requests) in (4, 5)
    models.utilization = 0.5
    await asyncio.sleep(0.5)
    assert outcomes == {Outcome.DROPPED: 6, Outcome.DIFFERENT: 64}


@in_virtual_time
async def test_copies_wait_for_a_pause_between_requests_but_for_one_a_second(
    models: Models,
) -> None:
    alias, dark = _shadowed(models), models.models["dark"]
    for _ in range(3000):  # a client that calls again 1 ms after each answer
        await answered(alias)
        await asyncio.sleep(0.001)
    assert len(dark.requests) in (3, 4)
    await asyncio.sleep(1)
    assert len(dark.requests) == 64 + 3


@in_virtual_time
async def test_copies_wait_while_a_request_is_in_flight(models: Models) -> None:
    alias, dark, old = _shadowed(models), models.models["dark"], models.models["old"]
    for _ in range(3):
        await answered(alias)
    old.holds = True
    alias.infer(request(parameters={"penstock_no_shadow": True}))
    await asyncio.sleep(0.5)
    assert len(dark.requests) <= 1
    old.release()
    await asyncio.sleep(0.1)
    assert len(dark.requests) == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"correlation_id": 1, "sequence_start": True},
        {"parameters": {"penstock_no_shadow": True}},
        {"output_places": {"Y": object()}},
        {"scope": RequestScope(draw=Draw(0.5, shadowed=True))},
    ],
    ids=["sequence", "asked", "places", "copy"],
)
async def test_what_is_not_copied(models: Models, fields: dict[str, Any]) -> None:
    alias = _shadowed(models)
    await answered(alias, **fields)
    await answered(alias)
    await _until(lambda: _shadow(alias).counts.outcomes.total() == 1)
    assert len(models.models["dark"].requests) == 1


async def test_models_with_side_effects_get_no_copies(models: Models) -> None:
    models.models["dark"].config = Config("true")
    alias = _shadowed(models)
    await answered(alias)
    await _until(lambda: _shadow(alias).counts.outcomes[Outcome.DROPPED] == 1)
    models.models["old"].config = Config("true")
    await answered(alias)
    assert not models.models["dark"].requests


async def test_a_cancelled_request_leaves_no_copy(models: Models) -> None:
    alias = _shadowed(models)
    models.models["old"].holds = True
    alias.infer(request()).close()
    assert _shadow(alias).counts.outcomes == {Outcome.DROPPED: 1}
    assert not models.models["dark"].requests


async def test_another_shadow_begins_anew_and_the_same_goes_on(models: Models) -> None:
    alias = _shadowed(models)
    before = _shadow(alias)
    assert alias.follow(_shadowed(models).alias) is None
    assert alias.shadow is before
    assert alias.follow(_shadowed(models, percent=5).alias) is before
    assert alias.follow(models.alias().alias) is not None
    assert alias.shadow is None


async def test_streams_are_compared_as_a_whole(models: Models) -> None:
    def texts(*parts: bytes) -> FakeModel:
        def say(stream: ResponseStream) -> None:
            for part in parts:
                stream.send(TextResponse(part))
            stream.end()

        return FakeModel(0, say)

    models.models |= {"old": texts(b"one ", b"two"), "dark": texts(b"o", b"ne two")}
    alias = _shadowed(models)
    await answered(alias)
    counts = _shadow(alias).counts
    await _until(lambda: counts.outcomes[Outcome.EQUAL] == 1)
    models.models["dark"] = texts(b"one ", b"twelve")
    await answered(alias)
    await _until(lambda: counts.outcomes[Outcome.DIFFERENT] == 1)
    text = counts.differing[-1].difference.text
    assert text.endswith("the text is equal for the first 6 bytes of 7 and 10")


# -- guards -------------------------------------------------------------------------------------


def test_latency_is_judged_by_the_first_target_also_when_it_has_no_requests_any_more(
    models: Models,
) -> None:
    guard = {"min_requests": 10, "max_p99_ratio": 2, "window": 10}
    alias = models.alias(50, guard=guard)
    for number in range(200):
        alias.windows["old"].add(number / 100, 0.01, failed=False)
        alias.windows["new"].add(number / 100, 0.015, failed=False)
    assert alias.judge(2.0) is None
    alias.follow(models.alias(0, guard=guard).alias)
    for number in range(200):
        alias.windows["new"].add(60 + number / 100, 0.05, failed=False)
    verdict = alias.judge(62.0)
    assert verdict is not None
    assert verdict.text.startswith("'new' took 50")
    assert verdict.text.endswith("ms of 'old', more than 2")
    alias.follow(alias.alias.back())
    assert alias.judge(62.0) is None  # nothing to go back from


def _megabyte(number: int) -> InferenceResponse:
    tensor = Tensor.from_numpy(np.full(1 << 18, number, np.float32))
    return InferenceResponse({"Y": tensor}, final=number == 39)


def _large(stream: ResponseStream) -> None:
    for number in range(40):
        stream.send(_megabyte(number))


async def test_answers_of_streams_are_held_no_further_than_there_is_room(models: Models) -> None:
    """Others are copied no more while one stream holds all the room, and again after it."""
    old = models.models["old"]
    old.holds = True
    alias = _shadowed(models)
    outcomes = _shadow(alias).counts.outcomes
    long = alias.infer(request())
    old.holds = False
    for number in range(32):
        old.held[0].send(_megabyte(number))
    await answered(alias)
    assert outcomes == {Outcome.DROPPED: 1}
    for number in range(32, 40):
        old.held[0].send(_megabyte(number))
    assert [one.size async for one in long] == [1 << 20] * 40
    assert outcomes == {Outcome.DROPPED: 2}
    await answered(alias)
    await _until(lambda: outcomes.total() == 3)
    assert outcomes == {Outcome.DROPPED: 2, Outcome.DIFFERENT: 1}
    assert len(models.models["dark"].requests) == 1


async def test_a_copy_with_a_larger_answer_than_there_is_room_for_has_failed(
    models: Models,
) -> None:
    models.models["dark"] = FakeModel(1, _large)
    alias = _shadowed(models, compare={"contents": True})
    await answered(alias)
    counts = _shadow(alias).counts
    await _until(lambda: counts.outcomes.total() == 1)
    assert counts.outcomes == {Outcome.FAILED: 1}
    contents = counts.differing[0].difference.contents
    assert contents == ("", "the answer has more than 32 MiB")

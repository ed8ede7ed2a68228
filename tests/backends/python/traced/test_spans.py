"""Spans that models make with OpenTelemetry: they come to the server as part of their request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from backends.python.traced import models
from backends.python.traced.house import TRACED, House, message, opened, timeline_of, told
from penstock.core.errors import RequestCancelledError
from penstock.core.timeline import Timeline
from penstock.tracing.spans import Kind, ModelSpan
from penstock.tracing.tracer import UNTRACED

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

_BATCHED = """
max_batch_size: 4
dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000 }
"""
_DECOUPLED = "model_transaction_policy { decoupled: true }"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    repository = {
        "spans": (models.SPANS, ""),
        "batched": (models.SPANS, _BATCHED),
        "own": (models.OWN_PROVIDER, ""),
        "thread": (models.THREAD_SPANS, _DECOUPLED),
        "asyncio": (models.ASYNCIO_SPANS, ""),
        "stream": (models.PLAIN_STREAM, _DECOUPLED),
        "many": (models.MANY_SPANS, ""),
        "late": (models.LATE_SPANS, _DECOUPLED),
    }
    async with opened(tmp_path_factory.mktemp("models"), repository) as house:
        yield house


def _spans(timeline: Timeline) -> dict[str, ModelSpan]:
    return {span[0]: ModelSpan(*span) for span in timeline.spans}


def _parents(timeline: Timeline) -> dict[str, str]:
    """The names of the parents of spans by their names; empty for the request's own span."""
    spans = _spans(timeline)
    names = {span.span_id: name for name, span in spans.items()} | {0: ""}
    return {name: names[span.parent_id] for name, span in spans.items()}


async def test_spans_are_below_that_of_the_request(house: House) -> None:
    _, trace = await house.traced("spans", "explicit")
    request = timeline_of(trace, "spans")
    assert _parents(request) == {"look": "", "deeper": "look", "explicit": ""}
    for span in _spans(request).values():
        assert request.begin - 10**7 < span.begin <= span.end < request.end + 10**7


async def test_spans_have_attributes_and_events(house: House) -> None:
    _, trace = await house.traced("spans")
    look = _spans(timeline_of(trace, "spans"))["look"]
    scope = {"otel.scope.name": "of-the-model"}
    assert look.attributes == {"model.size": 2.5, "texts": ["a", "b"], **scope}
    ((name, at, about),) = look.events
    assert (name, about) == ("found", {"count": 3})
    assert look.begin <= at <= look.end
    assert (look.error, look.kind, look.links) == (None, Kind.CLIENT, [(f"{0x17:032x}", 0x18)])


async def test_failed_span_says_why(house: House) -> None:
    with pytest.raises(Exception, match="no such luck"):
        await house.ask("spans", "fail", TRACED)
    failing = _spans(timeline_of(await house.trace(), "spans"))["failing"]
    ((name, _, about),) = failing.events
    assert (name, about["exception.message"]) == ("exception", "no such luck")
    assert failing.error == "ValueError: no such luck"


async def test_models_get_the_baggage(house: House) -> None:
    assert (await house.traced("spans", "x", ("baggage", "k=v")))[0] == "v"


async def test_spans_without_a_parent_are_of_the_first_request_of_a_batch(house: House) -> None:
    """Of those that are traced; with an explicit parent they are of the request that it names."""
    calls = []
    for id, metadata in {"untraced": [], "one": [TRACED]}.items():
        asked = message("batched", id, batched=True)
        calls.append(house.client.call("ModelInfer", asked, metadata=metadata))
    await asyncio.gather(*calls)
    request = timeline_of(await house.trace(), "batched")
    assert request.batch is not None
    assert request.batch.requests == 2
    assert sorted(_spans(request)) == ["deeper", "look", "one"]


async def test_explicit_parents_of_a_batch_are_told_apart(house: House) -> None:
    calls = [
        house.client.call("ModelInfer", message("batched", id, batched=True), metadata=[TRACED])
        for id in ("one", "two")
    ]
    await asyncio.gather(*calls)
    found = [timeline_of(await house.trace(), "batched") for _ in calls]
    for request in found:
        assert request.request_id in _spans(request)
    assert sum(len(request.spans) for request in found) == 4


async def test_provider_of_the_model_is_left_alone(house: House) -> None:
    (same, parent), trace = await house.traced("own")
    request = timeline_of(trace, "own")
    assert same
    assert parent == f"{request.span_id:016x}"
    assert request.spans == []


async def test_threads_give_the_parent_themselves(house: House) -> None:
    replies = house.client.stream(iter([message("thread", "t")]), metadata=[TRACED])
    assert [told(one.infer_response) async for one in replies] == [0, 1]
    request = timeline_of(await house.trace(), "thread")
    assert _parents(request) == {"part0": "around", "part1": "around", "around": ""}


async def test_spans_of_overlapping_requests_are_told_apart(house: House) -> None:
    """Both wait for each other in the middle; a thread of `asyncio.to_thread` has the context."""
    calls = [
        house.client.call("ModelInfer", message("asyncio", id), metadata=[TRACED])
        for id in ("a", "b")
    ]
    await asyncio.gather(*calls)
    for _ in calls:
        request = timeline_of(await house.trace(), "asyncio")
        id = request.request_id
        assert _parents(request) == {
            f"first {id}": "",
            f"second {id}": "",
            f"thread {id}": f"second {id}",
        }


async def test_span_around_a_plain_stream(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    replies = house.client.stream(iter([message("stream", "to be")]), metadata=[TRACED])
    assert [told(one.infer_response) async for one in replies] == ["to", "be"]
    assert _parents(timeline_of(await house.trace(), "stream")) == {"words": ""}
    assert "detach" not in capfd.readouterr().err


async def test_trace_waits_for_the_span_that_sent_the_last_response(house: House) -> None:
    replies = house.client.stream(iter([message("late")]), metadata=[TRACED])
    assert [told(one.infer_response) async for one in replies] == [0, 1]
    assert _parents(timeline_of(await house.trace(), "late")) == {"around": ""}


async def test_spans_of_a_cancelled_request_come_too(house: House) -> None:
    replies = house.client.stream(metadata=[TRACED])
    await replies.write(message("late", "cancel"))
    assert told((await replies.read()).infer_response) == 0
    replies.cancel()
    request = timeline_of(await house.trace(), "late")
    assert isinstance(request.error, RequestCancelledError)
    assert _parents(request) == {"around": ""}


async def test_number_of_spans_of_a_request_is_limited(house: House) -> None:
    _, trace = await house.traced("many")
    request = timeline_of(trace, "many")
    assert len(request.spans) == 256
    assert request.facts["spans_dropped"] == 44


async def test_no_span_of_requests_that_are_not_traced(house: House) -> None:
    assert await house.ask("spans", "x") is None
    _, trace = await house.traced("spans", "y")
    assert sorted(_spans(timeline_of(trace, "spans"))) == ["deeper", "look", "y"]


@pytest.mark.parametrize("propagates", [True, False])
async def test_opentelemetry_is_loaded_only_in_its_mode(tmp_path: Path, propagates: bool) -> None:
    tracer = None if propagates else UNTRACED
    async with opened(tmp_path, {"loaded": (models.LOADED, "")}, tracer) as house:
        assert await house.ask("loaded") is propagates

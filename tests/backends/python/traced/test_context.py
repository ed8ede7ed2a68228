"""The context of a trace inside models in Python, and the parents of the calls that they make."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from backends.python.traced import models
from backends.python.traced.house import (
    TRACED,
    House,
    message,
    opened,
    own_marks,
    timeline_of,
    told,
)
from harness.serving import wait_until
from penstock.core.errors import InferenceError
from penstock.core.timeline import Trace

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

_BATCHED = "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000 }"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    decoupled = "model_transaction_policy { decoupled: true }"
    repository = {
        "leaf": (models.LEAF, ""),
        "caller": (models.CALLER, ""),
        "batched": (models.CALLER, f"max_batch_size: 4 {_BATCHED}"),
        "coroutine": (models.COROUTINE, ""),
        "decoupled": (models.DECOUPLED, decoupled),
        "asking": (models.ASYNCIO, ""),
        "together": (models.TOGETHER, f"max_batch_size: 4 {_BATCHED}"),
    }
    async with opened(tmp_path_factory.mktemp("models"), repository) as house:
        yield house


def _parents(trace: Trace) -> dict[str, str]:
    """The model of the parent, or nothing, of each call of `leaf` by its id."""
    return {
        one.request_id: one.parent.model if one.parent else ""
        for one in trace.timelines
        if one.model == "leaf"
    }


@pytest.mark.contract("T-17")
async def test_context_is_the_span_of_the_request(house: House) -> None:
    """The form is the real server's: compact JSON, `tracestate` only where there is one."""
    seen, trace = await house.traced("leaf")
    span = timeline_of(trace, "leaf")
    traceparent = f"00-0af7651916cd43dd8448eb211c80319c-{span.span_id:016x}-01"
    assert seen == json.dumps({"traceparent": traceparent}, separators=(",", ":"))


@pytest.mark.contract("T-17")
async def test_context_has_the_state_but_no_baggage(house: House) -> None:
    state, baggage = ("tracestate", "a=b,c=d"), ("baggage", "k=v")
    seen, trace = await house.traced("leaf", "", state, baggage)
    assert trace.baggage == "k=v"
    assert seen.endswith(',"tracestate":"a=b,c=d"}')


@pytest.mark.contract("T-17")
async def test_no_context_where_the_request_is_not_traced(house: House) -> None:
    assert await house.ask("leaf") is None
    assert await house.ask("asking") == {}


@pytest.mark.contract("T-17", "T-23")
@pytest.mark.parametrize("how", ["named", "plain"])
async def test_call_is_part_of_the_request_it_is_made_for(house: House, how: str) -> None:
    seen, trace = await house.traced("caller", how)
    leaf = timeline_of(trace, "leaf")
    assert leaf.parent is timeline_of(trace, "caller")
    assert f"-{leaf.span_id:016x}-" in seen


@pytest.mark.contract("T-17", "T-23")
async def test_call_of_a_batch_is_part_of_the_request_that_it_names(house: House) -> None:
    """The other request of the batch does not name itself."""
    ids = "named", "plain"
    calls = [
        house.client.call("ModelInfer", message("batched", id, batched=True), metadata=[TRACED])
        for id in ids
    ]
    await asyncio.gather(*calls)
    traces = [await house.trace() for _ in ids]
    found = {one.timelines[0].request_id: one for one in traces}
    batches = [one.timelines[0].batch for one in traces]
    assert [batch.requests for batch in batches if batch] == [2, 2]
    assert _parents(found["named"]) == {"named": "batched"}
    assert _parents(found["plain"]) == {}


@pytest.mark.contract("T-17", "T-23")
async def test_untraced_request_of_a_batch_does_not_call_for_the_traced_one(house: House) -> None:
    calls = [
        house.client.call("ModelInfer", message("batched", f"named{n}", batched=True), metadata=own)
        for n, own in enumerate([[], [TRACED]])
    ]
    await asyncio.gather(*calls)
    assert _parents(await house.trace()) == {"named1": "batched"}


@pytest.mark.contract("T-17", "T-23")
async def test_calls_of_a_coroutine_are_part_of_its_request(house: House) -> None:
    _, trace = await house.traced("coroutine", "c")
    assert _parents(trace) == {"c0": "coroutine", "c1": "coroutine"}


@pytest.mark.contract("T-17", "T-23")
async def test_thread_of_a_decoupled_model_names_the_request(house: House) -> None:
    """A thread that names none may be about any request, so its calls are part of none."""
    for how, parents in {"named": {"named": "decoupled"}, "plain": {}}.items():
        replies = house.client.stream(iter([message("decoupled", how)]), metadata=[TRACED])
        (reply,) = [one async for one in replies if one.infer_response.outputs]
        trace = await house.trace()
        assert _parents(trace) == parents
        assert (told(reply.infer_response) is None) == (not parents)


@pytest.mark.contract("T-17")
async def test_call_after_the_answer_is_nobodys(house: House) -> None:
    """The real server answers such a call, and does not trace it."""
    replies = house.client.stream(iter([message("decoupled", "late")]), metadata=[TRACED])
    assert [told(one.infer_response) async for one in replies] == ["late"]
    assert _parents(await house.trace()) == {}
    assert await house.ask("leaf") is None  # and nothing is left behind


@pytest.mark.contract("T-17")
async def test_asyncio_model_gets_the_headers_for_other_services(house: House) -> None:
    state, baggage = ("tracestate", "a=b"), ("baggage", "k=v")
    seen, trace = await house.traced("asking", "", state, baggage)
    span = timeline_of(trace, "asking").span_id
    traceparent = f"00-0af7651916cd43dd8448eb211c80319c-{span:016x}-01"
    assert seen == {"traceparent": traceparent, "tracestate": "a=b", "baggage": "k=v"}


@pytest.mark.contract("T-23")
async def test_calls_of_overlapping_requests_have_their_own_parents(house: House) -> None:
    pair = [
        house.client.call("ModelInfer", message("asking", id), metadata=own)
        for id, own in {"pair1": [TRACED], "pair2": []}.items()
    ]
    first, second = await asyncio.gather(*pair)
    trace = await house.trace()
    assert _parents(trace) == {"pair1": "asking"}
    assert told(first) is not None
    assert told(second) is None


@pytest.mark.contract("T-18")
async def test_call_of_infer_batch_is_part_of_the_request_that_it_names(house: House) -> None:
    """And its span is part of the first one."""
    calls = [
        house.client.call("ModelInfer", message("together", id, batched=True), metadata=[TRACED])
        for id in ("named", "plain")
    ]
    await asyncio.gather(*calls)
    found = {one.timelines[0].request_id: one for one in [await house.trace() for _ in calls]}
    assert _parents(found["named"]) == {"named": "together"}
    assert _parents(found["plain"]) == {}
    spans = [len(timeline_of(one, "together").spans) for one in found.values()]
    assert sorted(spans) == [0, 1]


async def test_marks_of_a_cancelled_request_are_in_its_timeline(
    house: House, tmp_path: Path
) -> None:
    """Though its client did not wait for the model; the trace ends once that has noticed."""
    begun = tmp_path / "begun"
    asked = message("asking", f"begin {begun}")
    call = house.client.method("ModelInfer")(asked, metadata=[TRACED])
    await asyncio.to_thread(wait_until, begun.exists)
    call.cancel()
    asking = timeline_of(await house.trace(), "asking")
    assert isinstance(asking.error, InferenceError)
    assert own_marks(asking) == ["LOOK_START"]


async def test_log_of_a_model_names_the_trace(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        _, trace = await house.traced("asking", "log")
    (line,) = [one for one in caplog.records if one.getMessage().endswith(":served")]
    assert vars(line)["trace_id"] == f"{trace.trace_id:032x}"
    assert vars(line)["span_id"] == f"{timeline_of(trace, 'asking').span_id:016x}"


@pytest.mark.contract("T-18")
async def test_marks_of_a_model_are_in_its_timeline(house: House) -> None:
    _, trace = await house.traced("asking", "call")
    asking = timeline_of(trace, "asking")
    assert own_marks(asking) == ["LOOK_START", "LOOK_END"]
    times = dict(asking.marks)
    assert times["REQUEST_START"] < times["LOOK_START"] < times["LOOK_END"] < times["REQUEST_END"]
    assert _parents(trace) == {"call": "asking"}

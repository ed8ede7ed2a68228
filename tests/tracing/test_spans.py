"""The spans of a trace, from timelines made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import DeadlineExceededError, RequestCancelledError
from penstock.core.timeline import MOST_TIMELINES, Batch, Timeline, Trace, TraceContext
from penstock.tracing.packed_trace import pack
from penstock.tracing.spans import Kind, ModelSpan, Span, endpoint_attributes, spans
from tracing.export.traces import BEGIN, finish_request, plain_trace


def _spans(trace: Trace) -> list[Span]:
    return list(spans(pack(trace)))


def _named(found: list[Span], name: str) -> Span:
    (one,) = [span for span in found if span.name == name]
    return one


def _open_request() -> tuple[Trace, Timeline]:
    """A trace with one request to a model that is not finished."""
    trace = Trace(BEGIN)
    return trace, trace.root.nest("llm", "3", "", BEGIN)


def _ended(trace: Trace, request: Timeline, error: Any = None) -> list[Span]:
    request.finish(error, BEGIN + 1000)
    trace.root.finish(error, BEGIN + 1001)
    return _spans(trace)


@pytest.mark.contract("T-11")
def test_request_has_the_endpoints_span_the_models_and_its_execution() -> None:
    found = _spans(plain_trace())
    root, model = _named(found, "InferRequest"), _named(found, "plain")
    assert root.kind is Kind.SERVER
    assert root.parent_id == 0
    assert model.parent_id == root.span_id
    assert _named(found, "compute").parent_id == model.span_id
    assert len({span.trace_id for span in found}) == 1
    assert len(found) == 3


def test_root_is_below_the_span_of_the_caller() -> None:
    caller = TraceContext(5, 6, True, "vendor=1")
    found = _spans(plain_trace(caller=caller))
    root = _named(found, "InferRequest")
    assert (root.trace_id, root.parent_id, root.parent_is_remote) == (5, 6, True)
    assert {span.state for span in found} == {"vendor=1"}


def test_times_are_since_the_epoch_and_keep_their_distances() -> None:
    trace = plain_trace()
    packed = pack(trace)
    compute = _named(list(spans(packed)), "compute")
    assert compute.begin == BEGIN + 120 + packed[3]
    assert compute.end - compute.begin == 100
    assert compute.events[0][1] == compute.begin


@pytest.mark.contract("T-12")
def test_attributes_are_tritons() -> None:
    assert _named(_spans(plain_trace()), "plain").attributes == {
        "triton.model_name": "plain",
        "triton.model_version": 1,
        "triton.trace_id": 7,
        "triton.trace_parent_id": 0,
        "triton.request_id": "mine",
    }


def test_batch_of_one_is_no_link() -> None:
    compute = _named(_spans(plain_trace()), "compute")
    assert not compute.links
    assert compute.attributes["penstock.batch.requests"] == 1


def test_batch_of_several_is_linked() -> None:
    batch = Batch(BEGIN, 3, 5, "plain_0")
    compute = _named(_spans(plain_trace(batch=batch)), "compute")
    assert compute.links == [(batch.trace_id, batch.span_id)]
    assert compute.attributes["penstock.batch.rows"] == 5


def test_request_that_was_never_executed_has_no_execution() -> None:
    trace, request = _open_request()
    request.mark("QUEUE_START", BEGIN + 1)
    found = _ended(trace, request, DeadlineExceededError("Deadline Exceeded"))
    assert [span.name for span in found] == ["InferRequest", "llm"]
    errors = [span.error for span in found]
    assert all(error is not None and error.message == "Deadline Exceeded" for error in errors)
    assert found[1].attributes["error.type"] == "DeadlineExceededError"


def test_request_that_was_cancelled_while_executing_ends_in_its_execution() -> None:
    trace, request = _open_request()
    request.mark("QUEUE_START", BEGIN + 1)
    request.mark("COMPUTE_START", BEGIN + 2)
    found = _ended(trace, request, RequestCancelledError())
    compute = _named(found, "compute")
    assert compute.error is not None
    assert compute.end - compute.begin == 998


@pytest.mark.parametrize(("responses", "events"), [(1, 0), (2, 1)])
def test_first_response_is_an_event_where_more_follow(responses: int, events: int) -> None:
    trace, request = _open_request()
    request.mark("COMPUTE_START", BEGIN + 2)
    request.mark("FIRST_RESPONSE", BEGIN + 3)
    request.facts["responses"] = responses
    compute = _named(_ended(trace, request), "compute")
    assert [name for name, _, _ in compute.events].count("FIRST_RESPONSE") == events


def test_cache_hit_has_a_look_up_and_no_execution() -> None:
    trace, request = _open_request()
    for name, at in (("QUEUE_START", 0), ("CACHE_LOOKUP_START", 2), ("CACHE_LOOKUP_END", 5)):
        request.mark(name, BEGIN + at)
    request.facts["cache"] = "hit"
    found = _ended(trace, request)
    lookup = _named(found, "cache lookup")
    assert lookup.end - lookup.begin == 3
    assert lookup.parent_id == request.span_id
    assert "compute" not in [span.name for span in found]
    assert _named(found, "llm").attributes["penstock.cache"] == "hit"


def test_phases_of_an_engine_are_below_the_request_since_they_outlast_its_execution() -> None:
    trace, request = _open_request()
    request.mark("COMPUTE_START", BEGIN + 1)
    for at, name in enumerate(("ENGINE_QUEUED", "PREFILL_START", "FIRST_TOKEN", "DECODE_END")):
        request.mark(name, BEGIN + 10 * (at + 1))
    request.facts |= {"gen_ai.usage.output_tokens": 5, "gen_ai.response.finish_reasons": ["stop"]}
    found = _ended(trace, request)
    own = _named(found, "llm")
    phases = [_named(found, name) for name in ("engine queue", "prefill", "decode")]
    assert {span.parent_id for span in phases} == {own.span_id}
    assert [span.end - span.begin for span in phases] == [10, 10, 10]
    (event,) = [event for event in own.events if event[0] == "FIRST_TOKEN"]
    assert event[2] == {"gen_ai.server.time_to_first_token": 30 / 1e9}
    told = own.attributes
    assert told["gen_ai.usage.output_tokens"] == 5
    assert told["gen_ai.response.finish_reasons"] == ["stop"]


def test_phase_that_did_not_end_ends_with_its_request() -> None:
    trace, request = _open_request()
    request.mark("PREFILL_START", BEGIN + 10)
    found = _ended(trace, request, RequestCancelledError())
    prefill = _named(found, "prefill")
    assert prefill.end - prefill.begin == 990


@pytest.mark.contract("T-18")
def test_pairs_of_custom_marks_are_spans_and_others_events() -> None:
    trace, request = _open_request()
    for at, name in enumerate(
        ("COMPUTE_START", "OUTER_START", "INNER_START", "NOTE", "INNER_END", "OUTER_END", "X_START")
    ):
        request.mark(name, BEGIN + at)
    found = _ended(trace, request)
    compute, outer, inner = (_named(found, name) for name in ("compute", "OUTER", "INNER"))
    assert outer.parent_id == compute.span_id
    assert inner.parent_id == outer.span_id
    assert [name for name, _, _ in outer.events] == ["OUTER_START", "OUTER_END"]
    assert [name for name, _, _ in compute.events] == ["COMPUTE_START", "NOTE", "X_START"]


def test_repeated_pairs_are_spans_each() -> None:
    trace, request = _open_request()
    for at in range(3):
        request.mark("STEP_START", BEGIN + 10 * at)
        request.mark("STEP_END", BEGIN + 10 * at + 4)
    steps = [span for span in _ended(trace, request) if span.name == "STEP"]
    assert [span.end - span.begin for span in steps] == [4, 4, 4]


def test_spans_of_a_model_are_below_its_own() -> None:
    trace, request = _open_request()
    outer = ModelSpan("tokenize", 11, 0, BEGIN + 1, BEGIN + 9, {"words": 3}, (("now", BEGIN, {}),))
    inner = ModelSpan("look up", 12, 11, BEGIN + 2, BEGIN + 3, error="not found", kind=2)
    request.spans += [tuple(outer), tuple(inner)]
    found = _ended(trace, request)
    tokenize, look_up = _named(found, "tokenize"), _named(found, "look up")
    assert tokenize.parent_id == request.span_id
    assert look_up.parent_id == tokenize.span_id
    assert look_up.kind is Kind.CLIENT
    assert look_up.error is not None
    assert tokenize.events[0][0] == "now"


@pytest.mark.contract("E-16")
def test_nested_requests_are_below_what_made_them() -> None:
    trace, request = _open_request()
    step = request.nest("step", "1", "", BEGIN + 5)
    finish_request(step, BEGIN + 5)
    found = _ended(trace, request)
    assert _named(found, "step").parent_id == request.span_id


def test_requests_beyond_the_limit_are_counted() -> None:
    trace, request = _open_request()
    for _ in range(MOST_TIMELINES + 4):
        request.nest("step", "1", "", BEGIN).finish(None, BEGIN + 1)
    found = _ended(trace, request)
    assert _named(found, "InferRequest").attributes["penstock.requests_not_recorded"] == 5


_MARKS = st.sampled_from(
    "QUEUE_START COMPUTE_START COMPUTE_END CACHE_LOOKUP_START CACHE_LOOKUP_END A_START A_END"
    " B_START B_END NOTE FIRST_TOKEN PREFILL_START DECODE_END _START _END START REQUEST_END".split()
)


@given(st.lists(st.tuples(_MARKS, st.integers(0, 1500)), max_size=30))
def test_any_marks_make_spans_with_parents_that_end_after_their_beginning(
    marks: list[tuple[str, int]],
) -> None:
    trace, request = _open_request()
    for name, at in marks:
        request.mark(name, BEGIN + at)
    found = _ended(trace, request)
    ids = {span.span_id for span in found}
    assert len(ids) == len(found)
    assert all(span.parent_id in ids for span in found[1:])
    assert all(span.end >= span.begin for span in found)


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v2/models/a/infer", "/v2/models/{model}/infer"),
        ("/v2/models/a/versions/3/infer", "/v2/models/{model}/versions/{version}/infer"),
        ("/v2/models/a/generate_stream", "/v2/models/{model}/generate_stream"),
        ("/other", None),
    ],
)
def test_route_is_the_path_without_names(path: str, route: str | None) -> None:
    assert endpoint_attributes({"url.path": path}).get("http.route") == route


@pytest.mark.parametrize(
    ("peer", "address", "port"),
    [
        ("ipv4:10.0.0.1:50", "10.0.0.1", 50),
        ("ipv6:[::1]:50", "::1", 50),
        ("unix:/tmp/socket", "/tmp/socket", None),
        ("odd", "odd", None),
    ],
)
def test_peers_are_addresses_and_ports(peer: str, address: str, port: int | None) -> None:
    found = endpoint_attributes({"network.peer.address": peer})
    assert found["network.peer.address"] == address
    assert found.get("network.peer.port") == port

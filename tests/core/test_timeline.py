"""Timelines and traces: what they keep, how much of it, and when a trace has ended."""

from __future__ import annotations

from itertools import count

import numpy as np

from penstock.core.errors import InternalError
from penstock.core.tensor import Tensor
from penstock.core.timeline import Batch, Trace, TraceContext, received_timeline

CALLER = TraceContext(0xABC, 0x12, True, "k=v", "b=1")


def test_a_context_is_written_as_w3c_says() -> None:
    parent = f"00-{0xABC:032x}-{0x12:016x}-01"
    assert CALLER.headers == {"traceparent": parent, "tracestate": "k=v", "baggage": "b=1"}
    assert TraceContext(0xABC, 0x12, False).headers == {"traceparent": f"{parent[:-1]}0"}


def test_a_trace_goes_on_with_that_of_its_caller() -> None:
    trace = Trace(0, caller=CALLER, propagated=True)
    assert trace.text_id == f"{0xABC:032x}"
    own = trace.root.context
    assert (own.trace_id, own.sampled, own.state, own.baggage) == (0xABC, True, "k=v", "b=1")
    assert own.span_id == trace.root.span_id != CALLER.span_id


def test_a_trace_without_a_caller_is_new_and_not_propagated() -> None:
    one, other = Trace(0), Trace(0)
    assert one.trace_id != other.trace_id
    context = one.root.context
    assert (context.sampled, context.state, context.baggage) == (False, "", "")


def test_tensors_are_taken_at_one_level_only() -> None:
    levels = [{"TENSORS", "TIMESTAMPS"}, {"TIMESTAMPS"}, set[str]()]
    assert [Trace(0, frozenset(each)).takes_tensors for each in levels] == [True, False, False]


def test_a_copy_is_noted_of_a_tensor_whose_memory_is_used_again() -> None:
    memory = np.arange(3, dtype=np.int32)
    timeline = Trace(0).root
    timeline.add_tensors("TENSOR_QUEUE_INPUT", {"IN": Tensor.from_numpy(memory)})
    memory[:] = 0
    (noted,) = timeline.tensors
    assert (noted.activity, noted.name, noted.tensor.numpy().tolist()) == (
        *("TENSOR_QUEUE_INPUT", "IN"),
        [0, 1, 2],
    )
    assert noted.at > 0


def test_a_timeline_has_256_marks_at_most() -> None:
    timeline = Trace(0).root
    for at in range(1, 300):
        timeline.mark("M", at)
    assert timeline.marks == [("M", at) for at in range(1, 257)]
    timeline.add_recorded([("N", 1)], {}, [])
    assert len(timeline.marks) == 256


def test_a_mark_without_a_time_is_of_now() -> None:
    timeline = Trace(0).root
    timeline.mark("M")
    assert timeline.marks[0][1] > 0


def test_what_a_process_has_recorded_is_taken_once_and_added_up_to_the_bound() -> None:
    recorded = Trace(0).root
    assert recorded.take_recorded() is None
    recorded.mark("M", 5)
    recorded.facts["a"] = 1
    recorded.spans += [("s",)] * 200
    taken = recorded.take_recorded()
    assert taken == ([("M", 5)], {"a": 1}, [("s",)] * 200)
    assert recorded.take_recorded() is None
    timeline = Trace(0).root
    for _ in range(2):
        timeline.add_recorded(*taken)
    assert (timeline.marks, timeline.facts) == ([("M", 5)] * 2, {"a": 1})
    assert len(timeline.spans) == 256


def test_each_kind_of_record_is_reason_enough_to_send_it() -> None:
    marked, stated, spanned = (Trace(0).root for _ in range(3))
    marked.mark("M", 1)
    stated.facts["a"] = 1
    spanned.spans.append(("s",))
    taken = [one.take_recorded() for one in (marked, stated, spanned)]
    assert taken == [([("M", 1)], {}, []), ([], {"a": 1}, []), ([], {}, [("s",)])]


def test_a_trace_ends_once_with_the_last_of_its_timelines() -> None:
    ended: list[Trace] = []
    trace = Trace(0, numbers=count(7), on_end=ended.append)
    nested = trace.root.nest("m", "1", "r", 5)
    assert (nested.number, nested.model, nested.version, nested.request_id) == (7, "m", "1", "r")
    assert (nested.begin, nested.parent, trace.timelines) == (5, trace.root, [nested])
    trace.hold()
    trace.root.finish()
    failed = InternalError("x")
    nested.finish(failed, 9)
    nested.finish(at=11)  # only the first counts
    assert (nested.end, nested.error, ended) == (9, failed, [])
    trace.release()
    assert ended == [trace]
    assert trace.root.end > 0


def test_a_trace_keeps_1024_timelines_and_counts_the_others() -> None:
    trace = Trace(0)
    opened = [trace.root.nest("m", "", "", 1) for _ in range(1027)]
    assert (len(trace.timelines), trace.dropped) == (1024, 3)
    assert {each.number for each in opened} == {0}


def test_a_trace_that_was_read_lets_go_of_its_timelines() -> None:
    trace = Trace(0)
    trace.root.nest("m", "", "", 1)
    trace.forget()
    assert not trace.timelines
    assert not hasattr(trace, "root")


def test_a_batch_counts_those_of_its_requests_that_are_traced() -> None:
    batch, one, other = Batch(3, 5, 9, "m_0"), Trace(0).root, Trace(0).root
    batch.add(one)
    batch.add(other)
    facts = (batch.begin, batch.end, batch.requests, batch.rows, batch.instance, batch.traced)
    assert facts == (3, 0, 5, 9, "m_0", 2)
    assert one.batch is other.batch is batch
    assert batch.trace_id
    assert batch.span_id


def test_a_timeline_travels_to_a_process_and_its_number_comes_back() -> None:
    here = Trace(0, caller=CALLER, propagated=True).root
    reference = here.reference()
    assert isinstance(reference, tuple)
    there = received_timeline(reference, 4)
    assert there.reference() == 4
    assert there.span_id == here.span_id
    assert there.context == here.context
    unsampled = Trace(0, caller=CALLER).root.reference()
    assert isinstance(unsampled, tuple)
    assert not received_timeline(unsampled, 5).context.sampled

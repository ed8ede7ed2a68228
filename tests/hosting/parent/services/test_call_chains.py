"""Requests of a model process: their deadline, tenant and call chain."""

from __future__ import annotations

import pytest

from hosting.parent.services.calling_process import CallingProcess
from penstock.core.call_chain import CallingInstance, NestedCall, Wait
from penstock.core.request import InferenceRequest, RequestScope, Sender
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics


@pytest.mark.parametrize(
    ("deadlines", "decoupled", "expected"),
    [((5.0, 7.0), False, 7.0), ((5.0, None), False, None), ((5.0,), True, None), ((), False, None)],
    ids=["the last", "somebody waits", "decoupled", "nobody"],
)
async def test_request_has_the_time_of_those_that_it_is_made_for(
    deadlines: tuple[float | None, ...], decoupled: bool, expected: float | None
) -> None:
    process = CallingProcess(decoupled=decoupled)
    process.batch += [
        Inference(InferenceRequest("m", scope=RequestScope(deadline=deadline)), 1, Statistics())
        for deadline in deadlines
    ]
    process.call("a")
    assert process.services.requests[0].scope.deadline == expected


@pytest.mark.parametrize(
    ("senders", "expected"),
    [
        ((Sender("a", 1), Sender("a", 1)), Sender("a", 1)),
        ((Sender("a"), Sender("b")), None),
        ((Sender("a"), None), None),
        ((), None),
    ],
    ids=["one tenant", "two", "one and nobody", "nobody"],
)
async def test_request_is_sent_by_the_tenant_that_it_is_made_for(
    senders: tuple[Sender | None, ...], expected: Sender | None
) -> None:
    process = CallingProcess()
    process.batch += [
        Inference(InferenceRequest("m", scope=RequestScope(sender=sender)), 1, Statistics())
        for sender in senders
    ]
    process.call("a")
    assert process.services.requests[0].scope.sender == expected


async def test_request_is_for_those_that_wait_for_its_maker_and_for_that() -> None:
    process, outer, inner = (
        CallingProcess(),
        NestedCall(CallingInstance("a_0")),
        NestedCall(CallingInstance("b_0")),
    )
    process.batch += [_inference(outer), _inference(outer, inner)]
    process.call("a", holds=True)
    *former, last = process.services.requests[0].scope.call_chain
    assert former == [outer, inner]
    assert (last.caller.instance, last.blocking) == ("m_0_0", True)


async def test_who_waits_for_an_execution_that_calls_waits_for_this_instance() -> None:
    process, others = CallingProcess(), [CallingInstance("m_0_0"), CallingInstance("m_0_1")]
    inference = _inference(outer := NestedCall(CallingInstance("a_0"), blocking=True))
    inference.wait = Wait(outer, lambda: others)
    process.batch.append(inference)
    process.call("a", holds=True)
    assert list(inference.wait.instances()) == [
        process.services.requests[0].scope.call_chain[-1].caller
    ]


def _inference(*calls: NestedCall) -> Inference:
    return Inference(InferenceRequest("m", scope=RequestScope(call_chain=calls)), 1, Statistics())

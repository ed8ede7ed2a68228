"""Retries, hedging and failover, over transports that answer as told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.fake_transport import FakeTransport
from penstock_client.client import (
    CallPolicy,
    ConnectionLostError,
    DeadlineExceededError,
    InvalidArgumentError,
    NoServerError,
    ResourceExhaustedError,
    UnavailableError,
)
from penstock_client.client.caller import Caller

_QUICK = CallPolicy(attempts=3, backoff=0.0)


def _caller(*transports: FakeTransport) -> Any:
    return Caller(transports, CallPolicy())  # type: ignore[arg-type]


async def _call(caller: Any, policy: CallPolicy, within: float | None = None) -> Any:
    return await caller.call(lambda transport, left: transport.ready(left), within, policy)


async def _words(caller: Any, policy: CallPolicy, within: float | None = None) -> list[str]:
    answers = caller.stream(lambda transport, left: transport.words(left), within, policy)
    return [word async for word in answers]


async def test_nothing_is_tried_again_by_default() -> None:
    transport = FakeTransport(UnavailableError("busy"), True)
    with pytest.raises(UnavailableError, match="busy"):
        await _call(_caller(transport), CallPolicy())
    assert transport.calls == 1


async def test_what_is_unavailable_is_tried_again() -> None:
    transport = FakeTransport(UnavailableError("busy"), ResourceExhaustedError("full"), True)
    assert await _call(_caller(transport), _QUICK) is True
    assert transport.calls == 3


async def test_what_is_wrong_is_not_tried_again() -> None:
    transport = FakeTransport(InvalidArgumentError("shape"), True)
    with pytest.raises(InvalidArgumentError):
        await _call(_caller(transport), _QUICK)
    assert transport.calls == 1


async def test_a_lost_request_is_tried_again_only_on_demand() -> None:
    with pytest.raises(ConnectionLostError):
        await _call(_caller(FakeTransport(ConnectionLostError("gone"), True)), _QUICK)
    policy = CallPolicy(attempts=2, backoff=0.0, after_loss=True)
    assert await _call(_caller(FakeTransport(ConnectionLostError("gone"), True)), policy) is True


async def test_an_address_without_a_server_is_passed_over() -> None:
    down, up = FakeTransport(NoServerError("none")), FakeTransport(True)
    caller = _caller(down, up)
    assert [await _call(caller, CallPolicy()) for _ in range(4)] == [True] * 4
    assert down.calls <= 1, "it was asked again at once"


async def test_all_addresses_without_a_server_fail() -> None:
    first, second = FakeTransport(NoServerError("none")), FakeTransport(NoServerError("none"))
    with pytest.raises(NoServerError):
        await _call(_caller(first, second), CallPolicy())
    assert (first.calls, second.calls) == (1, 1)


async def test_attempts_share_the_deadline() -> None:
    transport = FakeTransport(UnavailableError("busy"))
    policy = CallPolicy(attempts=10, backoff=30.0, longest_backoff=30.0)
    with pytest.raises(UnavailableError):
        await _call(_caller(transport), policy, within=5.0)
    assert transport.calls == 1, "there is no time for another attempt"


async def test_no_attempt_begins_after_the_deadline() -> None:
    with pytest.raises(DeadlineExceededError):
        await _call(_caller(FakeTransport(True)), CallPolicy(), within=0.0)


async def test_the_first_of_two_hedged_answers_counts() -> None:
    slow, quick = FakeTransport(asyncio.Event()), FakeTransport("quick")
    caller = _caller(quick, slow)  # which begins with the second one
    assert await _call(caller, CallPolicy(hedge_after=0.0)) == "quick"
    assert (slow.cancelled, quick.calls) == (slow.calls, 1)


async def test_a_hedge_that_fails_leaves_the_first_attempt() -> None:
    held = asyncio.Event()
    slow, broken = FakeTransport(held), FakeTransport(InvalidArgumentError("broken"))
    caller = _caller(broken, slow)  # which begins with the second one
    call = asyncio.ensure_future(_call(caller, CallPolicy(hedge_after=0.0)))
    await broken.called.wait()
    held.set()
    assert await call is held


async def test_cancelling_a_hedged_call_cancels_both() -> None:
    transports = FakeTransport(asyncio.Event()), FakeTransport(asyncio.Event())
    call = asyncio.ensure_future(_call(_caller(*transports), CallPolicy(hedge_after=0.0)))
    for transport in transports:
        await transport.called.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [transport.cancelled for transport in transports] == [1, 1]


async def test_a_stream_is_tried_again_before_its_first_response() -> None:
    transport = FakeTransport([UnavailableError("busy")], ["a", "b"])
    assert await _words(_caller(transport), _QUICK) == ["a", "b"]


async def test_a_stream_that_has_begun_is_not_tried_again() -> None:
    transport = FakeTransport(["a", UnavailableError("busy")], ["a", "b"])
    with pytest.raises(UnavailableError):
        await _words(_caller(transport), _QUICK)
    assert transport.calls == 1


async def test_a_stream_passes_over_an_address_without_a_server() -> None:
    down, up = FakeTransport([NoServerError("none")]), FakeTransport(["a"])
    caller = _caller(down, up)
    assert [await _words(caller, CallPolicy()) for _ in range(3)] == [["a"]] * 3
    assert down.calls <= 1


async def test_a_refused_stream_without_retries_fails() -> None:
    with pytest.raises(UnavailableError):
        await _words(_caller(FakeTransport([UnavailableError("busy")])), CallPolicy())


async def test_a_stream_waits_before_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    full = ResourceExhaustedError("full", retry_after=7)
    caller = _caller(FakeTransport([full], [full], ["a"]))
    assert await _words(caller, CallPolicy(attempts=3)) == ["a"]
    assert waited == [7, 7]


async def test_attempts_of_a_stream_are_counted() -> None:
    busy = [UnavailableError("busy")]
    with pytest.raises(UnavailableError):
        await _words(_caller(FakeTransport(busy, busy, busy, ["a"])), _QUICK)


async def test_attempts_of_a_stream_share_the_deadline() -> None:
    transport = FakeTransport([UnavailableError("busy")])
    policy = CallPolicy(attempts=10, backoff=30.0, longest_backoff=30.0)
    with pytest.raises(UnavailableError):
        await _words(_caller(transport), policy, within=5.0)
    assert transport.calls == 1, "there is no time for another attempt"


async def test_an_attempt_of_a_stream_has_what_is_left_of_the_deadline() -> None:
    transport = FakeTransport(["a"])
    await _words(_caller(transport), CallPolicy(), within=5.0)
    (left,) = transport.timeouts
    assert left is not None
    assert 0 < left <= 5


async def test_no_attempt_of_a_stream_begins_after_the_deadline() -> None:
    with pytest.raises(DeadlineExceededError):
        await _words(_caller(FakeTransport(["a"])), CallPolicy(), within=0.0)

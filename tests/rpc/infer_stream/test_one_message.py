"""A request to a model that is not decoupled gets exactly one message in its stream."""

from __future__ import annotations

import pytest

from penstock.core.errors import InternalError
from penstock.core.request import InferenceResponse
from rpc.infer_stream.talk import Talk
from rpc.manual import ask, finals, number, numbers, turns

_LOGGED = "once-logged"
"""A model of which no other test has lines in the log: of each kind ten a minute are kept."""


@pytest.mark.contract("DC-04")
async def test_what_follows_the_response_is_logged(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    await talk.say(ask(_LOGGED, "a"), ask(_LOGGED, "b"))
    await talk.answer("b", number(9, final=True))
    await talk.answer("a", number(1), number(2), number(3, final=True))
    assert numbers(talk.responses) == [("a", 1), ("b", 9)]
    assert finals(talk.responses) == [False, True]
    (record,) = caplog.records
    assert record.getMessage() == (
        "the model 'once-logged' is not decoupled, and the request 'a' has its one response:"
        " 2 more are dropped"
    )


@pytest.mark.contract("DC-04")
async def test_error_that_follows_the_response_is_logged(
    strict_talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    """The request has been answered: its error does not end the call either."""
    talk = strict_talk
    await talk.say(ask(_LOGGED, "a"), ask(_LOGGED, "b"))
    await talk.answer("a", number(1))
    talk.server.streams["a"].fail(InternalError("broken"))
    await talk.answer("b", number(2, final=True))
    await talk.end()
    assert numbers(talk.responses) == [("a", 1), ("b", 2)]
    assert caplog.records[0].getMessage().endswith("has its one response: broken")


async def test_response_that_follows_an_error_is_logged(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    await talk.say(ask(_LOGGED, "a"))
    await talk.answer("a", InferenceResponse(error=InternalError("first")), number(2, final=True))
    assert [response.error_message for response in talk.responses] == ["first"]
    assert "1 more are dropped" in caplog.text


@pytest.mark.parametrize("empty_final", [False, True])
async def test_end_after_the_one_response_sends_no_message(
    talk: Talk, empty_final: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await talk.say(ask("once", "a", empty_final=empty_final))
    await talk.answer("a", number(1))
    talk.server.streams["a"].end()
    await talk.end()
    assert numbers(talk.responses) == [("a", 1)]
    assert caplog.records == []


@pytest.mark.contract("DC-04")
async def test_request_that_ends_without_a_response_gets_an_error(talk: Talk) -> None:
    await talk.say(ask("once", "a", empty_final=True))
    talk.server.streams["a"].end()
    await turns()
    (response,) = talk.responses
    assert response.error_message == "expected a single response, got 0"
    assert finals(talk.responses) == [True]


async def test_request_with_its_response_is_not_cancelled(talk: Talk) -> None:
    await talk.say(ask("once", "a"))
    await talk.answer("a", number(1))
    assert not talk.server.streams["a"].ended
    await talk.answer("a", number(2, final=True))
    await talk.end()
    assert talk.server.closed == []

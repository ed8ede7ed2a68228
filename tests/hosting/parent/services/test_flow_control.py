"""Flow control of responses to a model process, which go out as it has room."""

from __future__ import annotations

from hosting.parent.services.calling_process import CallingProcess, response, turn
from penstock.core.delivery import deliver
from penstock.core.flow_control import WINDOW
from penstock.core.stream import ResponseStream
from penstock.hosting.link.messages import Kind


async def test_no_more_is_sent_than_there_is_room_for() -> None:
    process = CallingProcess()
    process.call("x", "many", decoupled=True)
    await turn()
    for number in range(100):
        process.services.streams["x"].send(response(number))
    assert process.numbers == list(range(WINDOW.responses))
    process.tell(Kind.CALL_TAKEN, (1, 5))
    assert process.numbers == list(range(WINDOW.responses + 5))


async def test_responses_of_an_engine_that_pushes_keep_their_order() -> None:
    """Taking some lets others follow at once, from below."""
    process = CallingProcess()
    process.call("x", "many", decoupled=True)
    engine = ResponseStream()
    for number in range(200):
        engine.send(response(number))
    engine.end()
    deliver(engine, process.services.streams["x"])
    await turn()
    while process.said[-1][0] is Kind.CALLED:
        process.tell(Kind.CALL_TAKEN, (1, 3))
    assert process.numbers == list(range(200))
    assert process.said[-1] == (Kind.CALL_END, 1)

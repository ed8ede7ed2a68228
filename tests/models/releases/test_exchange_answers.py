"""Answers of models' own applications, read so that they can be compared."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models.releases.fake_models import FakeModel, Models, request
from models.releases.test_alias_model import _until
from penstock.core.errors import InvalidRequestError
from penstock.core.http_exchange import HttpExchange, HttpHead
from penstock.core.request import ExchangePart
from penstock.core.stream import ResponseStream
from penstock.models.releases.comparison import Answer, first_difference
from penstock.models.releases.definition import parse_alias
from penstock.models.releases.exchange_answer import as_outputs
from penstock.models.releases.shadow import Outcome

JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"


def _answer(body: bytes, kind: str = JSON, *, cut: int = 1 << 20) -> Answer:
    parts = [ExchangePart(head=HttpHead(200, (("Content-Type", kind),)))]
    parts += [ExchangePart(body=body[at : at + cut]) for at in range(0, len(body), cut)]
    return Answer(parts, None, 0.0)


def _json(**fields: Any) -> Answer:
    return _answer(json.dumps(fields).encode())


def _events(*events: dict[str, Any], cut: int = 1 << 20) -> Answer:
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    return _answer(body + b"data: [DONE]\n\n", EVENTS, cut=cut)


def _delta(text: str, **more: Any) -> dict[str, Any]:
    return {"id": str(id(text)), "choices": [{"index": 0, "delta": {"content": text}, **more}]}


def _difference(first: Answer, second: Answer, **compare: Any) -> str | None:
    shadow = {"model": "b", "compare": compare}
    alias = parse_alias("a", {"targets": [{"model": "c"}], "shadow": shadow})
    assert alias.shadow is not None
    found = first_difference(as_outputs(first), as_outputs(second), alias.shadow.compare)
    return None if found is None else found.text


def _chat(text: str, number: int, **more: Any) -> Answer:
    message = {"role": "assistant", "content": text, **more}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return _json(id=f"chat-{number}", created=number, choices=[choice], usage={"n": number})


def test_ids_and_times_of_an_answer_are_not_compared() -> None:
    assert _difference(_chat("Hello", 1), _chat("Hello", 2)) is None
    assert _difference(_chat("Hello", 1), _chat("Help", 1)) == (
        "output 'choices[0].message.content': the text is equal for the first 3 bytes of 5 and 4"
    )


def test_streams_are_compared_however_they_are_cut() -> None:
    first = _events(_delta("Hel"), _delta("lo"), _delta("", finish_reason="stop"), cut=7)
    second = _events({"choices": []}, _delta("Hello", finish_reason="stop"))
    assert _difference(first, second) is None
    longer = _events(_delta("Hel"), _delta("lo you", finish_reason="stop"))
    assert _difference(first, longer) == (
        "output 'choices[0].delta.content': the text is equal for the first 5 bytes of 5 and 9"
    )
    ended = _events(_delta("Hello", finish_reason="length"))
    assert "finish_reason" in (_difference(first, ended) or "")


def test_calls_of_tools_are_compared() -> None:
    def calling(arguments: str) -> Answer:
        called = {"id": arguments, "function": {"name": "f", "arguments": arguments}}
        return _chat("", 1, tool_calls=[called])

    assert _difference(calling("{}"), calling("{}")) is None
    found = _difference(calling("{}"), calling('{"a": 1}'))
    assert found is not None
    assert "choices[0].message.tool_calls[0].function.arguments" in found


@pytest.mark.parametrize("packed", [False, True])
def test_embeddings_are_compared_by_tolerance(packed: bool) -> None:
    def embedded(*numbers: float) -> Answer:
        array = np.array(numbers, np.float32)
        told = base64.b64encode(array.tobytes()).decode() if packed else array.tolist()
        return _json(object="list", data=[{"index": 0, "embedding": told}])

    assert _difference(embedded(1, 2), embedded(1, 2.0001), rtol=1e-3) is None
    assert _difference(embedded(1, 2), embedded(1, 2.1), rtol=1e-3) == (
        "output 'data[0].embedding': 1 of 2 elements differ, the first is number 2"
    )
    assert _difference(embedded(1, 2), embedded(1)) is not None


def test_order_of_what_has_an_index_does_not_matter() -> None:
    results = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
    assert _difference(_json(results=results), _json(results=results[::-1])) is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"RIFF", "audio/wav"),
        (b'{"other": 1}', JSON),
        (b'{"data": [{"embedding": "x"}]}', JSON),
        (b'{"data": [{"embedding": [[1], 2]}]}', JSON),
        (b'{"data": [{"embedding": {}}]}', JSON),
        (b"[" * 100_000, JSON),
        (b"data: {\n\n", EVENTS),
        (b"", JSON),
    ],
)
def test_what_is_not_known_is_compared_as_a_whole(body: bytes, kind: str) -> None:
    assert _difference(_answer(body, kind), _answer(body, kind)) is None
    found = _difference(_answer(body + b"2", kind), _answer(body + b"1", kind))
    assert found is not None
    assert found.startswith("output 'body': the text is equal for the first ")


def _saying(text: str) -> Callable[[ResponseStream], None]:
    def say(stream: ResponseStream) -> None:
        for part in _chat(text, 1).responses:
            stream.send(part)
        stream.end()

    return say


def _refusing(stream: ResponseStream) -> None:
    stream.send(ExchangePart(head=HttpHead(422)))
    stream.send(ExchangePart(body=b"no", final=True, error=InvalidRequestError("422")))


def _exchange(path: str = "/v1/chat/completions", method: str = "POST") -> HttpExchange:
    return HttpExchange(method, path, body=b'{"model": "alias"}')


@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        (_saying("Hello"), Outcome.EQUAL),
        (_saying("Help"), Outcome.DIFFERENT),
        (_refusing, Outcome.FAILED),
    ],
)
async def test_exchanges_are_copied_and_compared(
    second: Callable[[ResponseStream], None], outcome: Outcome
) -> None:
    models = Models()
    models.models |= {"old": FakeModel(1, _saying("Hello")), "dark": FakeModel(2, second)}
    alias = models.alias(shadow={"model": "dark"})
    assert alias.shadow is not None
    asked = request(exchange=_exchange())
    parts = [one async for one in alias.exchange(asked)]
    assert b"Hello" in b"".join(one.body for one in parts if isinstance(one, ExchangePart))
    counts = alias.shadow.counts
    await _until(lambda: bool(counts.outcomes))
    assert counts.outcomes == {outcome: 1}
    (copy,) = models.models["dark"].requests
    assert (copy.model_name, copy.exchange) == ("dark", asked.exchange)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/v1/responses", "POST"),
        ("/v1/responses/resp_1", "GET"),
        ("/v1/responses/r/cancel", "POST"),
    ],
)
async def test_exchanges_that_an_application_remembers_are_not_copied(
    path: str, method: str
) -> None:
    models = Models()
    models.models |= {"old": FakeModel(1, _saying("a")), "dark": FakeModel(2, _saying("a"))}
    alias = models.alias(shadow={"model": "dark"})
    assert alias.shadow is not None
    for exchange in (_exchange(path, method), _exchange()):
        assert [one async for one in alias.exchange(request(exchange=exchange))]
    outcomes = alias.shadow.counts.outcomes
    await _until(lambda: bool(outcomes))
    assert len(models.models["dark"].requests) == outcomes.total() == 1

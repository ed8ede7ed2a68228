"""Remote models of OpenAI's API: their tensors, and the relay for OpenAI's own clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.remote.far_server import entry
from backends.remote.openai_peer import USAGE, OpenAiPeer, events, openai_peer, text, whole
from penstock.core.errors import (
    ConfigError,
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.timeline import Trace
from penstock.testing import RunningInstance, running
from penstock_backends.remote import RemoteBackend

STREAM = (text("On"), text("ce"), text(" more", "length"), {"choices": [], "usage": USAGE})
WHOLE = whole({"choices": [{"index": 0, "text": "Once", "finish_reason": "stop"}], "usage": USAGE})


@asynccontextmanager
async def loaded(
    tmp_path: Path, *peers: OpenAiPeer, settings: Any = None, **parameters: str
) -> AsyncIterator[RunningInstance]:
    address = ",".join(peer.address for peer in peers)
    given = {"remote_model": "far", "health_interval_ms": "60000", **parameters}
    config = entry("m", address, **given)
    async with running(RemoteBackend, config, tmp_path, settings) as instance:
        yield instance


@asynccontextmanager
async def asked(
    tmp_path: Path, answer: Iterable[bytes | None], **parameters: str
) -> AsyncIterator[tuple[OpenAiPeer, RunningInstance]]:
    async with openai_peer(answer) as peer, loaded(tmp_path, peer, **parameters) as instance:
        yield peer, instance


async def texts(instance: RunningInstance, parameters: Any = None, **inputs: Any) -> list[bytes]:
    given = {"text_input": "Say", **inputs}
    return [
        one.outputs["text_output"].elements()[0]
        async for one in instance.infer(given, parameters or {})
    ]


async def test_whole_answer_with_its_prompt(tmp_path: Path) -> None:
    async with asked(tmp_path, [WHOLE]) as (peer, instance):
        given = {"max_tokens": "5", "temperature": 0.5, "stop": "x"}
        assert await texts(instance, given) == [b"SayOnce"]
        assert peer.bodies == [
            {
                "model": "far",
                "prompt": "Say",
                "max_tokens": 5,
                "temperature": 0.5,
                "stop": ["x"],
            }
        ]


async def test_stream_of_pieces_with_the_counts_at_its_end(tmp_path: Path) -> None:
    wanted = {
        "stream": np.array([True]),
        "return_num_output_tokens": np.array([True]),
        "return_num_input_tokens": np.array([True]),
        "return_finish_reason": np.array([True]),
    }
    async with asked(tmp_path, events(*STREAM, "[DONE]")) as (peer, instance):
        found = [
            one
            async for one in instance.infer(
                {"text_input": "Say", **wanted}, {"penstock_coalesce": False}
            )
        ]
        assert peer.bodies[0]["stream_options"] == {"include_usage": True}
        numbers = instance.backend.metrics()
    pieces = [one.outputs["text_output"].elements()[0] for one in found]
    assert pieces == [b"On", b"ce", b" more", b""]
    assert sum(int(one.outputs["num_output_tokens"].numpy()[0]) for one in found) == 3
    assert int(found[-1].outputs["num_input_tokens"].numpy()[0]) == 7
    assert found[-1].outputs["finish_reason"].elements() == [b"length"]
    assert numbers["penstock_llm_generation_tokens_total"] == 3
    assert numbers["penstock_llm_prefill_tokens_total"] == 7


async def test_chat_takes_a_message_and_answers_with_its_content(tmp_path: Path) -> None:
    pieces = [{"choices": [{"index": 0, "delta": {"content": one}}]} for one in ("Hel", "lo")]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    answer = events(*pieces, last, "[DONE]")
    async with asked(tmp_path, answer, chat="true") as (peer, instance):
        found = await texts(instance, {"penstock_coalesce": False}, stream=np.array([True]))
        assert found == [b"Hel", b"lo", b""]
        assert peer.bodies[0]["messages"] == [{"role": "user", "content": "Say"}]
        assert peer.heads[0].startswith("POST /v1/chat/completions HTTP/1.1")
        with pytest.raises(InvalidRequestError, match="a chat takes text in 'text_input'"):
            await anext(instance.infer({"input_ids": np.array([1, 2], np.int32)}))


async def test_tokens_are_a_prompt_of_a_completion(tmp_path: Path) -> None:
    async with asked(tmp_path, [WHOLE]) as (peer, instance):
        [response] = [
            one async for one in instance.infer({"input_ids": np.array([4, 5], np.int32)})
        ]
    assert peer.bodies[0]["prompt"] == [4, 5]
    assert response.outputs["text_output"].elements() == [b"Once"]


async def test_several_texts_of_one_prompt(tmp_path: Path) -> None:
    choices = [{"index": i, "text": f"t{i}", "finish_reason": "stop"} for i in (1, 0)]
    async with asked(tmp_path, [whole({"choices": choices})]) as (_, instance):
        given: dict[str, Any] = {"text_input": "Say", "exclude_input_in_output": np.array([True])}
        [response] = [one async for one in instance.infer(given, {"n": 2})]
    assert response.outputs["text_output"].elements() == [b"t0", b"t1"]


@pytest.mark.parametrize(
    ("inputs", "parameters", "told"),
    [
        ({}, {"temperture": 1.0}, "'temperture' is not supported by the remote.*'temperature'"),
        ({}, {"max_tokens": "many"}, "'max_tokens' must be an integer"),
        ({}, {"n": 0}, "'n' must be from 1 to 128, not 0"),
        ({"return_logprobs": True}, {}, "'return_logprobs': the remote does not tell logprobs"),
        ({"return_num_output_tokens": True}, {"n": 2}, "of each of 'n' texts"),
        ({"text_input": ""}, {}, "the prompt is empty"),
    ],
)
async def test_what_cannot_be_asked_is_named(
    tmp_path: Path, inputs: Any, parameters: Any, told: str
) -> None:
    given = {n: np.array([v]) if isinstance(v, bool) else v for n, v in inputs.items()}
    async with asked(tmp_path, [WHOLE]) as (peer, instance):
        with pytest.raises(InvalidRequestError, match=told):
            await texts(instance, parameters, **given)
        assert peer.bodies == []


async def test_reader_that_leaves_closes_the_connection(tmp_path: Path) -> None:
    parts = [*events(text("On"), end=False), None]
    async with asked(tmp_path, parts) as (peer, instance):
        responses = instance.infer({"text_input": "Say", "stream": np.array([True])})
        await anext(responses)
        await responses.aclose()
        async with asyncio.timeout(10):
            await peer.left.wait()
        assert instance.backend.metrics()["penstock_llm_cancelled_requests_total"] == 1


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        ([whole({"error": {"message": "bad length"}}, 400)], InvalidRequestError, "bad length"),
        ([whole({"message": "no such model"}, 404)], NotFoundError, "no such model"),
        ([whole({}, 418)], InvalidRequestError, "HTTP status 418"),
        ([whole({"error": "boom"}, 500)], InternalError, "boom"),
        ([whole({"error": "who?"}, 401)], UnavailableError, "does not know this server: who"),
        ([whole({"detail": "slow"}, 429, "retry-after: 9")], ExhaustedError, "slow"),
        ([b"nonsense\r\n\r\n"], UnavailableError, "not an answer of HTTP/1.1"),
        ([b""], UnavailableError, "the server closed the connection"),
        ([whole([1])], InternalError, "an answer that is none"),
        ([whole({"choices": []})], UnavailableError, "ended before its end"),
        (
            [whole({"choices": [{"index": 9, "text": "x"}]})],
            InternalError,
            "an answer that is none",
        ),
    ],
)
async def test_failures_of_whole_answers(
    tmp_path: Path, answer: list[bytes], kind: type[InferenceError], told: str
) -> None:
    async with asked(tmp_path, answer) as (_, instance):
        with pytest.raises(kind, match=told) as caught:
            await texts(instance)
        assert instance.backend.metrics()["penstock_llm_failed_requests_total"] == 1
    if isinstance(caught.value, ExhaustedError):
        assert "slow" in caught.value.message


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (events(text("On"), {"error": {"message": "lost it"}}), InternalError, "lost it"),
        (events(text("On"), "{"), InternalError, "an event that is none"),
        (events(text("On"), "[1]"), InternalError, "an event that is none"),
        (events(text("On"), "[DONE]"), UnavailableError, "ended before its end"),
        ([*events(text("On"), end=False), b""], UnavailableError, "closed the connection"),
        ([WHOLE], InternalError, "does not stream"),
    ],
)
async def test_failures_of_streams(
    tmp_path: Path, answer: Iterable[bytes], kind: type[InferenceError], told: str
) -> None:
    async with asked(tmp_path, answer) as (peer, instance):
        with pytest.raises(kind, match=told):
            await texts(instance, stream=np.array([True]))
        assert len(peer.bodies) == 1


async def test_answer_that_does_not_end_is_cut(tmp_path: Path) -> None:
    many = events(*[text("x" * 1000)] * 200)
    async with asked(tmp_path, many, max_response_bytes="100000") as (_, instance):
        with pytest.raises(InternalError, match="more than max_response_bytes"):
            await texts(instance, stream=np.array([True]))


async def test_slow_reader_stops_the_reading(tmp_path: Path) -> None:
    """The peer can write all only once the reader has taken it."""
    many = [*events(*[text("x" * 10_000)] * 3000, text("", "stop"))]
    async with asked(tmp_path, many) as (_, instance):
        responses = instance.infer({"text_input": "Say", "stream": np.array([True])})
        sizes = [len((await anext(responses)).outputs["text_output"].elements()[0])]
        async for one in responses:
            sizes.append(len(one.outputs["text_output"].elements()[0]))
            await asyncio.sleep(0)
    assert sum(sizes) == 30_000_000


async def test_addresses_fail_over_before_an_answer(tmp_path: Path) -> None:
    async with (
        openai_peer([whole({"error": "no room"}, 503)]) as full,
        openai_peer([WHOLE]) as good,
        loaded(tmp_path, full, good) as instance,
    ):
        for _ in range(6):
            assert await texts(instance) == [b"SayOnce"]
        assert full.bodies
        assert instance.backend.metrics()["remote_retries_total"] == len(full.bodies)


async def test_connection_is_kept_and_may_be_closed_by_the_server(tmp_path: Path) -> None:
    async with asked(tmp_path, [WHOLE]) as (peer, instance):
        for _ in range(5):
            await texts(instance)
        assert peer.connections <= 2
        peer.answer = [WHOLE, b""]
        for _ in range(5):
            assert await texts(instance) == [b"SayOnce"]


async def test_server_that_keeps_no_connection(tmp_path: Path) -> None:
    closing = WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with asked(tmp_path, [closing, b""]) as (peer, instance):
        for _ in range(3):
            assert await texts(instance) == [b"SayOnce"]
        assert peer.connections >= 3


async def test_model_that_is_not_in_the_list_is_not_ready(tmp_path: Path) -> None:
    async with openai_peer([WHOLE], ["a", "b"]) as peer, loaded(tmp_path, peer) as instance:
        assert "model 'far' is none of its models: a, b" in instance.backend.unready()


@pytest.mark.parametrize("models", [[], {"data": 1}, "text", {"data": [{"name": "x"}]}])
async def test_list_that_says_nothing_is_no_failure(tmp_path: Path, models: Any) -> None:
    async with openai_peer([WHOLE]) as peer:
        peer.models = models
        async with loaded(tmp_path, peer) as instance:
            assert instance.backend.unready() == ""


async def test_key_goes_to_its_address_only(tmp_path: Path) -> None:
    async with openai_peer([WHOLE]) as one, openai_peer([WHOLE]) as two:
        (tmp_path / "keys").write_text(f"# keys\n\n{one.address} abc\nhttp://elsewhere:1 def\n")
        settings = {"keys": str(tmp_path / "keys")}
        async with loaded(tmp_path, one, two, settings=settings) as instance:
            for _ in range(4):
                await texts(instance)
        assert "authorization: Bearer abc\r\n" in one.heads[0]
        assert "authorization" not in two.heads[0]


@pytest.mark.parametrize("lines", ["only-one-word\n", "a b c\n", "ftp://x key\n", None])
async def test_wrong_files_of_keys_are_named(tmp_path: Path, lines: str | None) -> None:
    path = tmp_path / "keys"
    if lines is not None:
        path.write_text(lines)
    async with openai_peer([WHOLE]) as peer:
        with pytest.raises(ConfigError, match=r"keys|address"):
            async with loaded(tmp_path, peer, settings={"keys": str(path)}):
                pass


async def test_traced_request_names_the_address(tmp_path: Path) -> None:
    async with asked(tmp_path, [WHOLE]) as (peer, instance):
        timeline = Trace(0, propagated=True).root
        await texts_in(instance, RequestScope(timeline=timeline))
        assert timeline.facts["remote.address"] == f"{peer.address}/v1"
        assert f"traceparent: 00-{timeline.trace.trace_id:032x}" in peer.heads[0]


async def texts_in(instance: RunningInstance, scope: RequestScope) -> None:
    [response] = [one async for one in instance.infer({"text_input": "Say"}, scope=scope)]
    assert response.final


# -- the relay -------------------------------------------------------------------------------------


async def relayed(
    instance: RunningInstance,
    body: Any,
    path: str = "/v1/completions",
    *,
    on_message: Callable[[Any], None] | None = None,
    left: asyncio.Event | None = None,
    parameters: Any = None,
) -> list[dict[str, Any]]:
    """The messages that the application of an instance sends."""
    app = await instance.backend.openai_app()
    sent: list[dict[str, Any]] = []
    read = False

    async def receive() -> Any:
        nonlocal read
        if not read:
            read = True
            return {"type": "http.request", "body": body, "more_body": False}
        await (left or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if on_message is not None:
            on_message(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"content-type", b"application/json"), (b"authorization", b"Bearer mine")],
        "extensions": {"penstock": {"request": InferenceRequest("m", parameters=parameters or {})}},
    }
    await app(scope, receive, send)
    return sent


ASKED = json.dumps({"model": "m", "prompt": "Say", "odd": [1]}).encode()


async def test_relay_changes_the_name_of_the_model_alone(tmp_path: Path) -> None:
    async with asked(tmp_path, [WHOLE]) as (peer, instance):
        sent = await relayed(instance, ASKED)
        assert peer.bodies == [{"model": "far", "prompt": "Say", "odd": [1]}]
        assert "mine" not in peer.heads[0]
    assert sent[0]["status"] == 200
    assert b"".join(one.get("body", b"") for one in sent[1:]) == WHOLE.partition(b"\r\n\r\n")[2]


async def test_relay_streams(tmp_path: Path) -> None:
    async with asked(tmp_path, events(*STREAM, "[DONE]")) as (_, instance):
        sent = await relayed(instance, ASKED, "/v1/chat/completions")
    body = b"".join(one.get("body", b"") for one in sent[1:])
    assert body.count(b"data: ") == 5
    assert (b"content-type", b"text/event-stream") in sent[0]["headers"]


async def test_relay_hands_failures_on(tmp_path: Path) -> None:
    answer = [whole({"error": {"message": "no"}}, 422, "retry-after: 3")]
    async with asked(tmp_path, answer) as (_, instance):
        sent = await relayed(instance, ASKED)
    assert sent[0]["status"] == 422
    assert (b"retry-after", b"3") in sent[0]["headers"]


async def test_relay_tries_another_address(tmp_path: Path) -> None:
    async with (
        openai_peer([whole({}, 503)]) as full,
        openai_peer([WHOLE]) as good,
        loaded(tmp_path, full, good) as instance,
    ):
        for _ in range(4):
            assert (await relayed(instance, ASKED))[0]["status"] == 200
        assert full.bodies


async def test_relay_ends_with_its_client(tmp_path: Path) -> None:
    left = asyncio.Event()
    parts = [*events(text("On"), end=False), None]
    async with asked(tmp_path, parts) as (peer, instance):
        with pytest.raises(UnavailableError, match="has left"):
            await relayed(instance, ASKED, on_message=lambda _: left.set(), left=left)
        async with asyncio.timeout(10):
            await peer.left.wait()


@pytest.mark.parametrize(
    ("answer", "told"),
    [([b""], "closed the connection"), ([*events(text("On"), end=False), b""], "closed")],
)
async def test_relay_tells_what_ended_it(tmp_path: Path, answer: Any, told: str) -> None:
    async with asked(tmp_path, answer) as (_, instance):
        with pytest.raises(UnavailableError, match=told):
            await relayed(instance, ASKED)


@pytest.mark.parametrize("body", [b"", b"[1]", b"{"])
async def test_relay_refuses_what_is_no_object(tmp_path: Path, body: bytes) -> None:
    async with asked(tmp_path, [WHOLE]) as (_, instance):
        sent = await relayed(instance, body)
    assert sent[0]["status"] == 400


async def test_relay_refuses_adapters(tmp_path: Path) -> None:
    async with asked(tmp_path, [WHOLE]) as (_, instance):
        with pytest.raises(UnsupportedError, match="adapters of a remote model"):
            await relayed(instance, ASKED, parameters={"adapter": "x"})


async def test_relay_refuses_paths_that_are_not_openais(tmp_path: Path) -> None:
    async with asked(tmp_path, [WHOLE]) as (_, instance):
        sent = await relayed(instance, ASKED, "/metrics")
    assert sent[0]["status"] == 404

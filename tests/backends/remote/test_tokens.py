"""Tokens of remote language models, in limits and for tenants."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.remote.bad_server import bad_server
from backends.remote.far_server import add_model, entry_text
from backends.remote.openai_peer import USAGE, events, openai_peer, text, whole
from fakes import until
from harness.serving import Served, serving
from penstock.demo.language_model import CHECKPOINT
from penstock_backends.remote.relayed_tokens import RelayedTokens

LIMIT = 'parameters { key: "penstock.max_queued_tokens" value { string_value: "20" } }\n'
STREAM = (text("a"), text("b", "stop"), {"choices": [], "usage": USAGE}, "[DONE]")


class Reports:
    """What was reported of a request."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int, int]] = []

    def __call__(self, prompt: int, cached: int, generated: int) -> None:
        self.all.append((prompt, cached, generated))


def relayed(
    given: dict[str, Any],
    answer: Iterable[bytes],
    kind: bytes = b"text/event-stream",
    path: str = "/v1/chat/completions",
) -> tuple[bytes, Reports, dict[str, Any]]:
    """What a client gets of an answer, what is reported, and the body that was sent."""
    reports = Reports()
    tokens = RelayedTokens(reports)
    tokens.body(given, path)
    tokens.begin(kind)
    passed = b"".join([tokens.feed(part) for part in answer])
    return passed + tokens.end(), reports, given


def told(*data: Any, end: bytes = b"\n\n") -> bytes:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in data]
    return b"".join(b"data: " + one.encode() + end for one in texts)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_the_end_that_nobody_asked_for_is_hidden(size: int, end: bytes) -> None:
    data = told(*STREAM, end=end)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    passed, reports, sent = relayed({"stream": True}, parts)
    assert passed == told(STREAM[0], STREAM[1], STREAM[3], end=end)
    assert (reports.all[0], reports.all[-1]) == ((0, 0, 1), (7, 0, 3))
    assert sent["stream_options"] == {"include_usage": True}


def test_the_end_that_a_client_has_asked_for_is_passed_on() -> None:
    given = {"stream": True, "stream_options": {"include_usage": True}}
    passed, reports, _ = relayed(given, [told(*STREAM)])
    assert passed == told(*STREAM)
    assert reports.all[-1] == (7, 0, 3)


def test_a_remote_that_lies_about_its_tokens_has_sent_some() -> None:
    for usage in ({"prompt_tokens": 7, "completion_tokens": 0}, {"prompt_tokens": -1}, "none"):
        end: Any = {"choices": [], "usage": usage}
        _, reports, _ = relayed({"stream": True}, [told(*STREAM[:2], end)])
        assert reports.all[-1][2] >= 1


def test_a_whole_answer_is_untouched() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    body = json.dumps({"choices": [], "usage": {**USAGE, **details}}).encode()
    passed, reports, sent = relayed({}, [body[:9], body[9:]], b"application/json")
    assert (passed, reports.all, sent) == (body, [(7, 4, 3)], {})


def test_usage_at_the_end_of_a_long_answer_is_found() -> None:
    body = json.dumps({"data": [{"embedding": "A" * (6 << 20)}], "usage": USAGE}).encode()
    parts = [body[at : at + (64 << 10)] for at in range(0, len(body), 64 << 10)]
    passed, reports, _ = relayed({}, parts, b"application/json", "/v1/embeddings")
    assert (passed == body, reports.all) == (True, [(7, 0, 3)])


def test_responses_and_messages_tell_by_themselves() -> None:
    usage = {"input_tokens": 7, "output_tokens": 3}
    delta = {"type": "response.output_text.delta", "delta": "a"}
    answer = told(delta, delta, {"type": "response.completed", "response": {"usage": usage}})
    passed, reports, sent = relayed({"stream": True}, [answer], path="/v1/responses")
    assert (passed, sent, reports.all[-1]) == (answer, {"stream": True}, (7, 0, 3))
    answer = told(
        {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}},
    )
    passed, reports, sent = relayed({"stream": True}, [answer], path="/v1/messages")
    assert (passed, sent, reports.all[-1]) == (answer, {"stream": True}, (7, 0, 3))


@pytest.mark.parametrize(
    "answer", [b"data: {no json\n\n", b"data: []\n\n", b": ping\n\n", b'data: {"usage": 3}\n\n']
)
def test_what_tells_nothing_passes(answer: bytes) -> None:
    passed, reports, _ = relayed({"stream": True}, [answer])
    assert (passed, reports.all) == (answer, [])


def test_a_client_that_leaves_has_had_what_had_come() -> None:
    reports = Reports()
    tokens = RelayedTokens(reports)
    tokens.begin(b"text/event-stream")
    tokens.feed(told(STREAM[0], STREAM[0]))
    tokens.cut_off()
    assert reports.all[-1] == (0, 0, 2)


# -- served ---------------------------------------------------------------------------------------


@asynccontextmanager
async def near(folder: Path, entry: str, *arguments: str) -> AsyncIterator[Served]:
    """A server with an entry `far` for a peer on the test's event loop."""
    add_model(folder / "near", "far", entry)
    with ExitStack() as stack:
        server = serving(folder / "near", folder / "near.log", *arguments)
        yield await asyncio.to_thread(stack.enter_context, server)  # it asks the peer meanwhile


async def tenants(served: Served, kind: str) -> dict[str, float]:
    async with httpx.AsyncClient(timeout=30) as client:
        page = (await client.get(served.metrics)).text
    name = f"penstock_llm_tenant_{kind}_tokens_total"
    return {
        tenant: float(value)
        for tenant, value in re.findall(rf'^{name}{{.*tenant="(\w+)".*}} (.*)$', page, re.M)
    }


async def post(served: Served, path: str, body: Any, tenant: str = "blue") -> httpx.Response:
    url, headers = f"http://{served.http}{path}", {"x-team": tenant}
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.post(url, json=body, headers=headers)


@pytest.mark.slow
async def test_tenants_pay_for_tokens_of_openais_api(tmp_path: Path) -> None:
    (tmp_path / "tenants").write_text("{}")
    arguments = (f"--tenants={tmp_path / 'tenants'}", "--tenant-header=x-team")
    async with (
        openai_peer(events(*STREAM)) as peer,
        near(tmp_path, entry_text(peer.address), *arguments) as served,
    ):
        asked = {"text_input": "hi", "stream": True, "max_tokens": 3}
        await post(served, "/v2/models/far/generate_stream", asked, "red")
        streamed = {"model": "far", "prompt": "hi", "stream": True}
        answer = await post(served, "/v1/completions", streamed)
        peer.answer = [whole({"choices": [{"text": "x"}], "usage": USAGE})]
        await post(served, "/v1/completions", {"model": "far", "prompt": "hi"})
        prompts, made = await tenants(served, "prompt"), await tenants(served, "generated")
    assert answer.text.count("data:") == 3
    assert (prompts, made) == ({"red": 7.0, "blue": 14.0}, {"red": 3.0, "blue": 6.0})


@pytest.mark.slow
async def test_tenants_pay_for_tokens_of_an_engine(tmp_path: Path) -> None:
    pytest.importorskip("smg_grpc_proto")
    from backends.remote.test_vllm_engine import chunk, complete, engine, ids

    (tmp_path / "tenants").write_text("{}")
    arguments = (f"--tenants={tmp_path / 'tenants'}", "--tenant-header=x-team")
    made = ids(" upon a")
    async with bad_server(engine(*[chunk([one]) for one in made], complete(made))) as server:
        more = {"protocol": "vllm", "tokenizer": str(CHECKPOINT)}
        async with near(tmp_path, entry_text(server.address, **more), *arguments) as served:
            body = {"text_input": "Once", "max_tokens": 3}
            answer = await post(served, "/v2/models/far/generate", body)
            found = await tenants(served, "generated")
    assert (answer.status_code, found) == (200, {"blue": float(len(made))})


@pytest.mark.slow
async def test_a_queue_of_tokens_is_bounded(tmp_path: Path) -> None:
    async with (
        openai_peer([None]) as peer,
        near(tmp_path, entry_text(peer.address) + LIMIT) as served,
        httpx.AsyncClient(timeout=30) as client,
    ):
        url = f"http://{served.http}/v2/models/far/generate_stream"
        body = {"text_input": "word " * 40, "stream": True}
        waiting = asyncio.ensure_future(client.post(url, json=body))
        await until(lambda: bool(peer.bodies))
        refused = await client.post(url, json=body)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert refused.status_code == 429
    assert "the queue of 'far' is full" in refused.text


async def test_a_remote_without_tokens_has_no_such_limit(tmp_path: Path) -> None:
    from dataclasses import replace

    from backends.remote.far_server import entry
    from penstock.core.config import Parameter
    from penstock.core.errors import ConfigError
    from penstock.models.loading.token_queues import token_queue
    from penstock_backends.remote import RemoteBackend

    config = entry("far", "grpc://localhost:1")
    limit = {"penstock.max_queued_tokens": Parameter("20")}
    config = replace(config, parameters={**config.parameters, **limit})
    with pytest.raises(ConfigError, match="is for language models"):
        token_queue(RemoteBackend, config, None)

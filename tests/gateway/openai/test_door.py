"""Requests to OpenAI's API, as a client over HTTP sees their answers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from fakes import InstallBackend, until
from gateway.openai.speaking import CHAT, OPENAI, Speaker, speaking
from gateway.serving import LOCAL
from harness.raw_clients import hang_up
from harness.standstill import standstill
from penstock.scheduling.tokens.tenants import Tenants
from penstock_backends.vllm.openai.application import with_response_id


@pytest_asyncio.fixture
async def client(
    tmp_path: Path, install_backend: InstallBackend
) -> AsyncIterator[httpx.AsyncClient]:
    async with speaking(tmp_path, install_backend, OPENAI, LOCAL, "mute", "missing") as (_, client):
        yield client


def error(answer: httpx.Response) -> dict[str, Any]:
    return dict(answer.json()["error"])


async def test_answer_is_relayed_with_its_head(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m"}, headers={"x-request-id": "mine"})
    assert (answer.status_code, answer.json()["object"]) == (200, "chat.completion")
    assert answer.headers["x-own"] == "1"
    assert answer.headers["x-request-id"] == "mine"
    assert "content-length" in answer.headers


async def test_model_gets_body_id_and_chosen_headers(client: httpx.AsyncClient) -> None:
    headers = {"X-Session-ID": "7", "cookie": "secret", "x-request-id": "mine"}
    await client.post(f"{CHAT}?a=b", json={"model": "m"}, headers=headers)
    (request,) = Speaker.requests
    exchange = request.exchange
    assert exchange is not None
    assert (request.id, exchange.path, exchange.query) == ("mine", CHAT, "a=b")
    assert exchange.body == b'{"model":"m"}'
    assert {"x-session-id", "content-type", "x-request-id"} <= {
        name for name, _ in exchange.headers
    }
    assert "cookie" not in {name for name, _ in exchange.headers}


async def test_refusal_of_the_model_is_relayed(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": "refuse"})
    assert (answer.status_code, error(answer)) == (422, {"message": "no"})


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{}", 400, "you must provide a model parameter"),
        (b'{"model": 3}', 400, "you must provide a model parameter"),
        (b"[1]", 400, "must be a JSON object"),
        (b"{", 400, "the body is not JSON"),
        (b'{"model": "m", "x": ' + b"[" * 10_000, 400, "the body is not JSON"),
        (b'{"model": "m", "model": "m:loud"}', 400, "'model' must be given once"),
        (b'{"model": "m", "mod\\u0065l": "mute"}', 400, "'model' must be given once"),
        (b'{"model": "m", "x": NaN, "model": null}', 400, "'model' must be given once"),
        (
            b'{"model": "m", "x": "%b", "model": "mute"}' % (b"x" * (1 << 20)),
            400,
            "'model' must be given once",
        ),
        (
            b'{"model": "m", "x": "%b", "m\\u006fdel": "m"}' % (rb"\u0061" * (1 << 17)),
            400,
            "'model' must be given once",
        ),
        (
            b'{"model": "m", "x": [%b], "model": "m"}' % (b"{}," * (1 << 17) + b"1"),
            413,
            "more than 1048576 values",
        ),
        (b'{"model": "lost"}', 404, "Unknown model: lost"),
        (b'{"model": "lost:loud"}', 404, "Unknown model: lost:loud"),
        (b'{"model": "mute"}', 400, "model 'mute' has no OpenAI routes"),
        (b'{"model": "missing"}', 501, "pip install 'penstock[openai]'"),
    ],
)
async def test_bad_request_is_refused_in_openais_form(
    client: httpx.AsyncClient, body: bytes, status: int, message: str
) -> None:
    answer = await client.post(CHAT, content=body)
    assert answer.status_code == status
    assert message in error(answer)["message"]
    assert error(answer).keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"model": "lost"}, 404),
        ({"model": "mute"}, 400),
        ({"model": "m", "do": "full"}, 429),
        ({"model": "m", "do": "headless"}, 500),
    ],
    ids=["no model", "unknown", "no routes", "the model's error", "no head"],
)
async def test_refusal_has_the_id_of_its_request(
    client: httpx.AsyncClient, body: dict[str, Any], status: int
) -> None:
    answer = await client.post(CHAT, json=body, headers={"x-request-id": "mine"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (status, "mine")


async def test_member_of_another_object_is_no_second_model(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"x": {"model": "x"}, "model": "m", "y": {"model": "y"}})
    assert answer.status_code == 200


async def test_full_queue_says_when_to_come_back(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": "full"})
    assert (answer.status_code, error(answer)["type"]) == (429, "rate_limit_error")
    assert answer.headers["retry-after"] == "7"


async def test_busy_engine_says_when_to_come_back(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": "busy"})
    assert (answer.status_code, error(answer)["message"]) == (503, "busy")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.contract("OA-21")
@pytest.mark.parametrize("declared", [True, False])
async def test_large_body_is_refused(
    tmp_path: Path, install_backend: InstallBackend, declared: bool
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield bytes(200)

    http = replace(LOCAL, max_input_size=100)
    async with speaking(tmp_path, install_backend, OPENAI, http) as (_, client):
        answer = await client.post(CHAT, content=bytes(200) if declared else parts())
    assert (answer.status_code, error(answer)["code"]) == (413, "content_too_large")


async def test_forwarded_header_is_no_finding_of_the_server(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    """Else a client could have an adapter loaded under the name of another."""
    http = replace(LOCAL, header_forward_pattern="model|adapter|fields|own")
    headers = {"model": "m:loud", "adapter": "quiet", "unknown_fields": "ignore", "x-own": "7"}
    async with speaking(tmp_path, install_backend, OPENAI, http) as (_, client):
        answer = await client.post(CHAT, json={"model": "m"}, headers=headers)
    assert answer.status_code == 200
    (request,) = Speaker.requests
    assert request.parameters == {"model": "m", "x-own": "7"}


async def test_adapter_is_named_behind_the_model(client: httpx.AsyncClient) -> None:
    await client.post(CHAT, json={"model": "m:loud"})
    (request,) = Speaker.requests
    assert request.model_name == "m"
    assert request.parameters == {"model": "m:loud", "adapter": "loud"}


async def test_settings_of_the_door_reach_the_application(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    settings = replace(OPENAI, lora_separator="/", unknown_fields="ignore", default_max_tokens=5)
    async with speaking(tmp_path, install_backend, settings) as (_, client):
        await client.post(CHAT, json={"model": "m/loud"})
    (request,) = Speaker.requests
    found = {"adapter": "loud", "unknown_fields": "ignore", "default_length": True}
    assert request.parameters == {"model": "m/loud", **found}


async def test_model_of_a_form_is_found(client: httpx.AsyncClient) -> None:
    files = {"file": ("a.wav", b"RIFF")}
    answer = await client.post("/v1/audio/transcriptions", data={"model": "m"}, files=files)
    assert answer.status_code == 200


async def test_tokens_of_a_response_are_the_models_to_count(client: httpx.AsyncClient) -> None:
    """The path is no response by its id, which takes no POST."""
    answer = await client.post("/v1/responses/input_tokens", json={"model": "m", "input": "a"})
    assert answer.status_code == 200


async def test_model_of_a_get_is_in_the_query(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/responses/resp_1?model=m")).status_code == 200
    assert (await client.get("/v1/responses/resp_1")).status_code == 400


@pytest.mark.parametrize("end", ["", "/cancel"])
async def test_id_of_a_stored_response_names_its_model(client: httpx.AsyncClient, end: str) -> None:
    stored = with_response_id(b'{"model":"m"}', "m:loud").decode()
    path = f"/v1/responses/{json.loads(stored)['request_id']}{end}"
    method = client.post if end else client.get
    assert (await method(path)).status_code == 200
    (request,) = Speaker.requests
    assert request.parameters == {"model": "m:loud", "adapter": "loud"}


@pytest.mark.contract("OA-14")
@pytest.mark.parametrize("path", ["", "/batch"])
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ('{"model":"m"}', '{"model":"m","max_completion_tokens":16}'),
        ('{"model":"m","max_tokens":3}', '{"model":"m","max_tokens":3}'),
        (
            '{"model":"m","max_tokens":null} ',
            '{"model":"m","max_tokens":null,"max_completion_tokens":16} ',
        ),
    ],
)
async def test_default_length_goes_into_requests_without_one(
    tmp_path: Path, install_backend: InstallBackend, path: str, given: str, wanted: str
) -> None:
    openai = replace(OPENAI, default_max_tokens=16)
    async with speaking(tmp_path, install_backend, openai) as (_, client):
        await client.post(f"{CHAT}{path}", content=given)
    exchange = Speaker.requests[0].exchange
    assert exchange is not None
    assert exchange.body.decode() == wanted


@pytest.mark.parametrize(
    ("given", "told"), [({}, {"default_length": True}), ({"max_completion_tokens": 3}, {})]
)
async def test_the_model_is_told_of_a_length_that_the_client_has_not_asked_for(
    tmp_path: Path, install_backend: InstallBackend, given: Any, told: Any
) -> None:
    openai = replace(OPENAI, default_max_tokens=16, aliases={"a": "m"})
    async with speaking(tmp_path, install_backend, openai) as (_, client):
        await client.post(CHAT, json={"model": "a", **given})
    assert Speaker.requests[0].parameters == {"model": "m", **told}


async def test_stream_is_relayed_event_by_event(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", CHAT, json={"model": "m", "do": "stream"}) as answer:
        chunks = answer.aiter_raw()
        assert await anext(chunks) == b"data: 1\n\n"
        Speaker.go_on.set()
        assert b"".join([chunk async for chunk in chunks]) == b"data: [DONE]\n\n"


async def test_idle_stream_is_kept_alive_by_comments(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    http = replace(LOCAL, event_keep_alive_secs=0.05)
    async with (
        speaking(tmp_path, install_backend, OPENAI, http) as (_, client),
        client.stream("POST", CHAT, json={"model": "m", "do": "stream"}) as answer,
    ):
        chunks = answer.aiter_raw()
        assert await anext(chunks) == b"data: 1\n\n"
        assert await anext(chunks) == b": keep-alive\n\n"
        Speaker.go_on.set()


async def test_error_after_the_first_event_is_an_event(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": "break_off"})
    first, second, rest = answer.text.split("\n\n")
    assert (answer.status_code, first, rest) == (200, "data: 1", "")
    assert "the engine has died" in second
    assert second.startswith('data: {"error":')


@pytest.mark.contract("OA-25")
async def test_disconnect_is_told_to_the_model(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", CHAT, json={"model": "m", "do": "hang"}) as answer:
        await anext(answer.aiter_raw())
    await asyncio.wait_for(Speaker.left.wait(), 20)


@pytest.mark.contract("OA-23")
@pytest.mark.parametrize("do", ["split", "headless", "empty"])
async def test_answer_that_cannot_be_sent_is_an_error_of_the_server(
    client: httpx.AsyncClient, do: str
) -> None:
    answer = await client.post(CHAT, json={"model": "m", "do": do})
    assert (answer.status_code, error(answer)["type"]) == (500, "server_error")
    assert "x-other" not in answer.headers
    assert (await client.post(CHAT, json={"model": "m"})).status_code == 200


async def test_parts_of_a_long_answer_keep_their_order(client: httpx.AsyncClient) -> None:
    """Taking some makes room for the next, which come at once, while those are not yet written."""
    answer = await client.post(CHAT, json={"model": "m", "do": "counting"})
    assert answer.json() == [*range(20_000)]


async def test_slow_reader_gets_everything(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", CHAT, json={"model": "m", "do": "flood"}) as answer:
        chunks = answer.aiter_raw()
        size = len(await anext(chunks))
        await standstill(lambda: Speaker.flooded, 10_000_000)  # the socket is full
        size += sum([len(chunk) async for chunk in chunks])
    assert size == 3000 * 1000 + len(b"data: [DONE]\n\n")


async def test_stalled_reader_holds_little_of_its_answer(client: httpx.AsyncClient) -> None:
    """Beside what the kernel has for it, which is asked."""
    body = b'{"model":"m","do":"pour"}'
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((client.base_url.host, client.base_url.port))
        slow.sendall(
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
            % (CHAT.encode(), len(body), body)
        )
        held = await standstill(lambda: Speaker.flooded, 30_000_000) - _in_the_kernel(slow)
    assert held <= 64 * 1024


def _in_the_kernel(client: socket.socket) -> int:
    """Bytes on their way to a client that the kernel holds, at both ends."""
    own, server = (f"{address[1]:04X}" for address in (client.getsockname(), client.getpeername()))
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, _, queues = line.split()[1:5]
        ports = local.partition(":")[2], remote.partition(":")[2]
        sent, received = (int(size, 16) for size in queues.split(":"))
        found += sent if ports == (server, own) else received if ports == (own, server) else 0
    return found


async def test_request_is_stopped_by_its_id(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    headers = {"x-request-id": "mine"}
    body = {"model": "m", "do": "hang"}
    async with speaking(tmp_path, install_backend, tenants=Tenants()) as (_, client):
        client.headers["api-key"] = "one tenant's"
        async with client.stream("POST", CHAT, json=body, headers=headers) as answer:
            chunks = answer.aiter_raw()
            await anext(chunks)
            stopped = await client.delete("/v1/requests/mine")
            assert stopped.json()["cancelled"]
            rest = b"".join([chunk async for chunk in chunks])
        assert b"cancelled" in rest
        await asyncio.wait_for(Speaker.left.wait(), 20)
        assert (await client.delete("/v1/requests/mine")).status_code == 404


async def test_deadline_ends_a_request(client: httpx.AsyncClient) -> None:
    headers = {"request-timeout": "0.5"}
    answer = await client.post(CHAT, json={"model": "m", "do": "hang"}, headers=headers)
    assert "Deadline Exceeded" in answer.text
    await asyncio.wait_for(Speaker.left.wait(), 20)


async def test_deadline_before_an_answer_is_status_504(client: httpx.AsyncClient) -> None:
    headers = {"request-timeout": "0.5"}
    answer = await client.post(CHAT, json={"model": "m", "do": "wait"}, headers=headers)
    assert (answer.status_code, error(answer)["type"]) == (504, "timeout_error")
    assert "Deadline Exceeded" in error(answer)["message"]
    await asyncio.wait_for(Speaker.left.wait(), 20)


async def test_requests_are_counted(tmp_path: Path, install_backend: InstallBackend) -> None:
    async with speaking(tmp_path, install_backend) as (server, client):
        await client.post(CHAT, json={"model": "m"})
        await client.post(CHAT, json={"model": "m", "do": "refuse"})
        (model,) = server.snapshot()
        await until(lambda: model.statistics.pending == 0)
    assert (model.statistics.success.count, model.statistics.fail.count) == (1, 1)


@pytest.mark.parametrize(("method", "path"), [("GET", CHAT), ("PUT", "/v1/models")])
async def test_other_method_is_refused(client: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, error(answer)["type"]) == (405, "invalid_request_error")


async def test_unknown_path_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/images/generations", json={})
    assert (answer.status_code, error(answer)["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'--x\r\ncontent-disposition: form-data; name="model"',
        b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n' + b"m" * 5000,
        b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n\r\n--x--\r\n',
    ],
)
async def test_form_without_a_model_is_refused(client: httpx.AsyncClient, body: bytes) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = await client.post("/v1/audio/transcriptions", content=body, headers=headers)
    assert (answer.status_code, error(answer)["param"]) == (400, "model")


async def test_head_and_old_http_are_answered(client: httpx.AsyncClient) -> None:
    head = await client.head("/v1/models")
    assert head.status_code == 405
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    body = b'{"model":"m","do":"break_off"}'
    writer.write(
        b"POST %b HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body)
    )
    answer = await asyncio.wait_for(reader.read(), 20)
    await hang_up(writer)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"the engine has died" in answer


async def test_unload_ends_with_its_requests(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    """A model that is unloaded completes what is in flight."""
    async with (
        speaking(tmp_path, install_backend, explicit_control=True) as (server, client),
        client.stream("POST", CHAT, json={"model": "m", "do": "stream"}) as answer,
    ):
        chunks = answer.aiter_raw()
        await anext(chunks)
        unloading = asyncio.create_task(server.unload("m"))
        Speaker.go_on.set()
        assert b"".join([chunk async for chunk in chunks]) == b"data: [DONE]\n\n"
        await unloading
        assert (await client.post(CHAT, json={"model": "m"})).status_code in (404, 503)

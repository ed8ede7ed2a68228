"""The generate endpoints on a port."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from gateway.serving import LOCAL, AnsweringServer, FakeServer, SilentServer, connected
from harness.standstill import standstill
from penstock.core.errors import ExhaustedError, InternalError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.gateway.app import open_gateway
from penstock.settings import HttpSettings

_ONE = "/v2/models/numbers/generate"
_STREAM = "/v2/models/numbers/generate_stream"
_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that"
    " generates various number of responses"
)


def _response(*values: float, **fields: Any) -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_numpy(np.array(values, np.float32))}, **fields)


def _json(**members: Any) -> dict[str, Any]:
    return {**members, "model_name": "numbers", "model_version": "1"}


def _events(answer: httpx.Response) -> list[Any]:
    *events, rest = answer.text.split("\n\n")
    assert rest == ""
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def _post(path: str, server: FakeServer, body: Any = None) -> httpx.Response:
    async with connected(server) as client:
        return await client.post(path, json={"IN": 1.0} if body is None else body)


@pytest.mark.parametrize("path", [_ONE, _STREAM])
async def test_an_input_that_comes_again_is_refused(path: str) -> None:
    async with connected(FakeServer()) as client:
        answer = await client.post(path, content=b'{"IN": 1.0, "IN": 2.0}')
    assert answer.status_code == 400
    assert "input 'IN' already exists in request" in answer.json()["error"]


class _FullServer(FakeServer):
    """Has no room for any request, or finds that out after it has admitted it."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self._late = late

    def infer(self, request: InferenceRequest) -> ResponseStream:
        error = ExhaustedError("no room", retry_after=7)
        if not self._late:
            raise error
        stream = ResponseStream()
        stream.fail(error)
        return stream


@pytest.mark.parametrize("path", [_ONE, _STREAM])
async def test_want_of_room_is_429_with_the_seconds_to_wait(path: str) -> None:
    answer = await _post(path, _FullServer(late=False))
    assert (answer.status_code, answer.json()) == (429, {"error": "no room"})
    assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize("path", [_ONE, _STREAM])
async def test_want_of_room_that_an_engine_finds_is_429_too(path: str) -> None:
    assert (await _post(path, _FullServer(late=True))).status_code == 429


@pytest.mark.contract("HG-06")
async def test_one_element_stands_without_a_list() -> None:
    answer = await _post(_ONE, AnsweringServer(_response(2.5)))
    assert (answer.status_code, answer.json()) == (200, _json(OUT=2.5))


@pytest.mark.contract("HG-06")
@pytest.mark.parametrize("values", [[1.0, 2.0], []])
async def test_other_tensors_are_flat_lists(values: list[float]) -> None:
    answer = await _post(_ONE, AnsweringServer(_response(*values)))
    assert answer.json() == _json(OUT=values)


async def test_parameters_of_the_response_stand_beside_its_outputs() -> None:
    answer = await _post(
        _ONE, AnsweringServer(_response(1.0, parameters={"reason": "stop", "n": 3}))
    )
    assert answer.json() == _json(OUT=1.0, reason="stop", n=3)


@pytest.mark.contract("HG-05")
async def test_members_are_in_the_order_of_their_names() -> None:
    answer = await _post(_ONE, FakeServer(), {"IN": 1.0, "id": "7"})
    text = '{"OUT":1.0,"id":"7","model_name":"numbers","model_version":"1"}'
    assert answer.text == text


@pytest.mark.contract("HG-05")
async def test_id_may_come_in_a_header(client: httpx.AsyncClient) -> None:
    answer = await client.post(_ONE, json={"IN": 1.0}, headers={"triton-request-id": "7"})
    assert answer.json()["id"] == "7"


@pytest.mark.contract("HG-07")
@pytest.mark.parametrize("count", [0, 2])
async def test_generate_takes_one_response(count: int) -> None:
    """The real server answers so with status 200."""
    answer = await _post(_ONE, AnsweringServer(*[_response(1.0)] * count))
    assert (answer.status_code, answer.json()) == (400, {"error": _NOT_ONE})


@pytest.mark.contract("HG-07")
async def test_status_is_that_of_the_first_response_also_of_two() -> None:
    """Triton has sent its status before it knows that there is a second one."""
    failed = InferenceResponse(error=InternalError("broken"))
    answer = await _post(_ONE, AnsweringServer(failed, _response(1.0)))
    assert (answer.status_code, answer.json()) == (400, {"error": _NOT_ONE})


async def test_second_response_ends_the_request(
    silent_client: httpx.AsyncClient, silent_server: SilentServer
) -> None:
    """Nobody needs the rest."""
    asking = asyncio.create_task(silent_client.post(_ONE, json={"IN": 1.0}))
    _, stream = await silent_server.asked.get()
    stream.send(_response(1.0))
    stream.send(_response(2.0))
    assert (await asking).json() == {"error": _NOT_ONE}
    assert stream.ended


async def test_failed_generate_has_status_400() -> None:
    answer = await _post(_ONE, AnsweringServer(error=InternalError("broken")))
    assert (answer.status_code, answer.json()) == (400, {"error": "broken"})


@pytest.mark.contract("HG-11")
async def test_compressed_bodies_are_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post(_ONE, content=b"x", headers={"content-encoding": "gzip"})
    assert answer.status_code == 400
    text = "Unsupported content-encoding, only 'identity' is supported."
    assert answer.json() == {"error": text}


@pytest.mark.contract("HG-08", "H-10")
async def test_every_response_is_an_event() -> None:
    answer = await _post(
        _STREAM, AnsweringServer(_response(1.0), InferenceResponse(), _response(2.0))
    )
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.status_code == 200
    assert _events(answer) == [_json(OUT=1.0), _json(), _json(OUT=2.0)]


@pytest.mark.contract("HG-10")
async def test_stream_without_responses_is_empty() -> None:
    answer = await _post(_STREAM, AnsweringServer())
    assert (answer.status_code, answer.text) == (200, "")


@pytest.mark.contract("HG-09")
async def test_later_errors_are_events() -> None:
    script = AnsweringServer(_response(1.0), error=InternalError("broken"))
    answer = await _post(_STREAM, script)
    assert (answer.status_code, _events(answer)) == (200, [_json(OUT=1.0), {"error": "broken"}])


@pytest.mark.contract("HG-09")
async def test_first_error_sets_the_status_and_the_stream_goes_on() -> None:
    failed = InferenceResponse(error=InternalError("broken"))
    answer = await _post(_STREAM, AnsweringServer(failed, _response(1.0)))
    assert (answer.status_code, _events(answer)) == (400, [{"error": "broken"}, _json(OUT=1.0)])


async def test_output_that_json_cannot_carry_is_an_error_of_its_event() -> None:
    half = InferenceResponse({"OUT": Tensor.from_numpy(np.ones(1, np.float16))})
    answer = await _post(_STREAM, AnsweringServer(_response(1.0), half, _response(2.0)))
    first, second, third = _events(answer)
    assert (first, third) == (_json(OUT=1.0), _json(OUT=2.0))
    assert "sending FP16" in second["error"]


async def test_events_come_when_they_are_made(
    silent_client: httpx.AsyncClient, silent_server: SilentServer
) -> None:
    async def answers() -> None:
        _, stream = await silent_server.asked.get()
        stream.send(_response(1.0))

    async with asyncio.TaskGroup() as group:
        group.create_task(answers())
        async with silent_client.stream("POST", _STREAM, json={"IN": 1.0}) as answer:
            lines = answer.aiter_lines()
            assert json.loads((await anext(lines)).removeprefix("data: ")) == _json(OUT=1.0)


async def test_idle_stream_gets_comments_between_its_events(silent_server: SilentServer) -> None:
    lines, commented = list[str](), asyncio.Event()

    async def answers() -> None:
        _, stream = await silent_server.asked.get()
        stream.send(_response(1.0))
        await commented.wait()
        stream.send(_response(2.0))
        stream.end()

    settings = replace(LOCAL, event_keep_alive_secs=0.05)
    async with connected(silent_server, settings) as client, asyncio.TaskGroup() as group:
        group.create_task(answers())
        async with client.stream("POST", _STREAM, json={"IN": 1.0}) as answer:
            async for line in answer.aiter_lines():
                lines.append(line)
                if line.startswith(":"):
                    commented.set()
    first, *comments, last = lines[::2]
    assert [json.loads(event.removeprefix("data: ")) for event in (first, last)] == [
        _json(OUT=1.0),
        _json(OUT=2.0),
    ]
    assert set(comments) == {": keep-alive"}
    assert set(lines[1::2]) == {""}


@pytest.mark.parametrize("size", [1, 1_000_000], ids=["short", "long"])
async def test_fault_ends_its_stream_with_an_event(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is met behind the outputs, which are encoded elsewhere if they are long."""
    outputs = _response(*[1.0] * size).outputs
    parameters: Any = {"x": object()}
    answer = await _post(
        _STREAM, AnsweringServer(InferenceResponse(outputs, parameters), _response(2.0))
    )
    assert _events(answer) == [{"error": "unexpected error, see the server's log"}]
    assert "object" in caplog.text


async def test_streams_cannot_be_resumed() -> None:
    server = AnsweringServer(_response(1.0))
    async with connected(server) as client:
        answer = await client.post(_STREAM, json={"IN": 1.0}, headers={"last-event-id": "7"})
    assert answer.status_code == 400
    assert "without the header 'Last-Event-ID'" in answer.json()["error"]
    assert server.requests == []


class _Endless(FakeServer):
    """Sends one response after another, as fast as they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.left = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        self._tasks.append(asyncio.create_task(self._send(stream)))

    async def _send(self, stream: ResponseStream) -> None:
        while not stream.ended:
            stream.send(_response(*[0.0] * 1000))
            self.sent += 1
            await stream.room()
            await asyncio.sleep(0)
        self.left.set()


@pytest.fixture
async def endless() -> AsyncIterator[tuple[_Endless, socket.socket]]:
    """A server that never ends, and the connection of a client that asked it and reads nothing."""
    server = _Endless()
    async with open_gateway(
        server, HttpSettings(address="127.0.0.1", port=0), ExitDeadline(1)
    ) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            body = b'{"IN": 1.0}'
            head = f"POST {_STREAM} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            yield server, connection


async def test_slow_reader_holds_the_model_back(endless: tuple[_Endless, socket.socket]) -> None:
    """Some megabytes fit into the buffers of the system; then nothing more is pulled."""
    server, connection = endless
    sent = await standstill(lambda: server.sent, limit=10_000)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    while server.sent == sent:
        await loop.sock_recv(connection, 1 << 20)


@pytest.mark.contract("HG-12")
async def test_reader_that_leaves_ends_the_request(endless: tuple[_Endless, socket.socket]) -> None:
    server, connection = endless
    await standstill(lambda: server.sent)
    connection.close()
    await asyncio.wait_for(server.left.wait(), 20)


class _LargeOnesServer(FakeServer):
    """Sends two large responses, the second while the first is encoded, or an error behind one."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self._fails = fails
        self._tasks: list[asyncio.Task[None]] = []

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        if self._fails:
            stream.send(_texts())
            stream.send(InferenceResponse(error=InternalError("too late"), final=True))
        else:
            self._tasks.append(asyncio.create_task(self._send(stream)))

    async def _send(self, stream: ResponseStream) -> None:
        stream.send(_texts())
        stream.send(_texts(final=True))


_LARGE = ["x" * 4000] * 5
"""Texts that are not encoded in one piece, and yet leave a client room for more."""


def _texts(**fields: Any) -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_strings(_LARGE, (len(_LARGE),))}, **fields)


async def test_a_large_response_that_comes_while_another_is_encoded_is_sent() -> None:
    events = _events(await _post(_STREAM, _LargeOnesServer(fails=False)))
    assert [event["OUT"] for event in events] == [_LARGE, _LARGE]


async def test_an_error_behind_a_large_response_is_an_event() -> None:
    first, last = _events(await _post(_STREAM, _LargeOnesServer(fails=True)))
    assert first["OUT"] == _LARGE
    assert last == {"error": "too late"}

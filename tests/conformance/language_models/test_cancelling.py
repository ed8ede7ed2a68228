"""Clients who leave a running answer, by every way: the engine keeps nothing."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from conformance.language_models.asking import PROMPT, Asked
from harness.serving import wait_until

SAMPLING = json.dumps({"max_tokens": 900, "temperature": 0, "ignore_eos": True})
TOGETHER = 8
"""Requests that run together, so that hardly one is done before its client leaves it."""
HELD = ("running_requests", "waiting_requests", "kv_cache_usage")


def engine(asked: Asked) -> dict[str, float]:
    """What the engine counts."""
    with urllib.request.urlopen(asked.server.metrics, timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    own = (line for line in lines if line.startswith("penstock_llm_") and 'model="m"' in line)
    return {line.partition("{")[0][13:]: float(line.rpartition(" ")[2]) for line in own}


def at_rest(asked: Asked) -> dict[str, float]:
    """The counts once it keeps nothing, also of what the test before has left."""
    counts: dict[str, float] = {}

    def rests() -> bool:
        counts.update(engine(asked))
        return not any(counts[name] for name in HELD)

    wait_until(rests)
    return counts


def requests() -> Any:
    message = service_pb2.ModelInferRequest(model_name="m")
    for name, text in (("text_input", PROMPT), ("sampling_parameters", SAMPLING)):
        tensor = message.inputs.add(name=name, datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(text.encode())
    tensor = message.inputs.add(name="stream", datatype="BOOL", shape=[1])
    tensor.contents.bool_contents.append(True)
    return iter([message])


def by_cancelling(asked: Asked) -> None:
    with grpc.insecure_channel(asked.server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        calls = [stub.ModelStreamInfer(requests()) for _ in range(TOGETHER)]
        for call in calls:
            next(call)
        for call in calls:
            call.cancel()


def by_disconnecting(asked: Asked) -> None:
    channel = grpc.insecure_channel(asked.server.grpc, [("grpc.use_local_subchannel_pool", 1)])
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    for call in [stub.ModelStreamInfer(requests()) for _ in range(TOGETHER)]:
        next(call)
    channel.close()


def by_a_deadline(asked: Asked) -> None:
    """The deadline is made longer until it passes while a request runs."""
    seconds = 0.1
    while not _cut(asked, seconds):
        seconds *= 1.5


def _cut(asked: Asked, seconds: float) -> bool:
    """Whether a deadline has cut a request off in the middle."""
    cut = False
    with grpc.insecure_channel(asked.server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        calls = [stub.ModelStreamInfer(requests(), timeout=seconds) for _ in range(TOGETHER)]
        for call in calls:
            received: list[Any] = []
            try:
                received.extend(call)
            except grpc.RpcError as error:
                late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                cut = cut or (late and bool(received))
    return cut


def by_closing_the_events(asked: Asked) -> None:
    body = json.dumps({"text_input": PROMPT, "stream": True, "sampling_parameters": SAMPLING})
    head = "POST /v2/models/m/generate_stream HTTP/1.1\r\nHost: m\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    host, _, port = asked.server.http.rpartition(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(TOGETHER)]
    for client in clients:
        client.sendall((head + body).encode())
    for client in clients:
        received = b""
        while b"data: " not in received:
            received += client.recv(4096)
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "leave",
    [by_cancelling, by_disconnecting, by_a_deadline, by_closing_the_events],
)
def test_the_engine_keeps_nothing_of_who_left(asked: Asked, leave: Callable[[Asked], None]) -> None:
    before = at_rest(asked)

    def over() -> bool:
        now = engine(asked)
        since = {name: now[name] - before[name] for name in now}
        ended = since["cancelled_requests_total"] + since["request_seconds_count"]
        return 0 < since["requests_total"] == ended

    def left_in_time() -> bool:
        """Whether an answer was running; on a busy machine all may be done before."""
        leave(asked)
        wait_until(over)
        now, name = engine(asked), "cancelled_requests_total"
        return now[name] > before[name]

    wait_until(left_in_time)
    assert at_rest(asked)["failed_requests_total"] == before["failed_requests_total"]

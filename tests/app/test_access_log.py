"""The access log of a whole server: a line for each request of each protocol, without secrets."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from harness.serving import Served, serving, wait_until
from penstock.protocol import grpc_service_pb2 as pb
from rpc.serving import SERVICE, infer_request, repeat_request, write_models

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "penstock-explain": "1"}


def call(channel: grpc.Channel, name: str, request: Any) -> Any:
    method = channel.unary_unary(
        f"/{SERVICE}/{name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=getattr(pb, f"{name}Response").FromString,
    )
    return method(request, metadata=(*TRACED.items(), ("authorization", "sesame")))


def post(server: Served, path: str, body: Any, **headers: str) -> int:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://{server.http}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def answered_once(id: str) -> pb.ModelInferRequest:
    """A request for a response at once, and another that never comes."""
    delays = np.array([0, 3_600_000], np.uint32)
    numbers, wait = np.array([1, 2], np.int32), np.zeros(1, np.uint32)
    return infer_request("repeat", id, IN=numbers, DELAY=delays, WAIT=wait)


@pytest.mark.slow
def test_every_request_has_a_line(tmp_path: Path) -> None:
    models, file, log = write_models(tmp_path / "models"), tmp_path / "access", tmp_path / "log"
    flags = (f"--access-log={file}", "--log-format=json", "--model-control-mode=explicit")
    loads = ("--load-model=identity", "--load-model=repeat")
    with serving(models, log, *flags, *loads) as server, grpc.insecure_channel(server.grpc) as one:
        call(one, "ServerLive", pb.ServerLiveRequest())
        numbers = np.array([8765, 4321], np.int32).view(np.float32)
        call(one, "ModelInfer", infer_request("identity", "g-1", IN=numbers))
        with pytest.raises(grpc.RpcError):
            call(one, "ModelInfer", infer_request("nope", "g-2"))
        stream = one.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        slow = repeat_request("repeat", [1, 2, 3], delay=100, id="s-1")
        answers = list(stream(iter([slow])))
        left: Any = stream(iter([answered_once("s-2")]))
        next(left)
        left.cancel()
        # The client knows the end first: the server's line is waited for, since lines are in order.
        wait_until(lambda: len(file.read_text().splitlines()) >= 5)
        tensor = {"name": "IN", "datatype": "FP32", "shape": [2], "data": [98765, 2]}
        body = {"id": "h-1", "inputs": [tensor]}
        infer = "/v2/models/identity/infer"
        assert post(server, f"{infer}?token=sesame", body, authorization="sesame", **TRACED) == 200
        assert post(server, infer, {"id": "h-2", "inputs": []}) == 400
        assert post(server, "/v2/models/a%0Ab/infer", {}) == 404
        host, port = server.http.split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"NONSENSE\r\n\r\n")
            client.recv(1000)
        wait_until(lambda: len(file.read_text().splitlines()) >= 9)
        first = file.read_text().splitlines()
        file.rename(tmp_path / "old")
        server.process.send_signal(signal.SIGHUP)
        wait_until(file.exists)
        assert post(server, "/v2/repository/index", {}) == 200
        assert server.stop() == 0
    lines = [json.loads(line) for line in first]
    assert [(one["protocol"], one["method"], one["status"]) for one in lines] == [
        ("gRPC", "ServerLive", "OK"),
        ("gRPC", "ModelInfer", "OK"),
        ("gRPC", "ModelInfer", "NOT_FOUND"),
        ("gRPC", "ModelStreamInfer", "OK"),
        ("gRPC", "ModelStreamInfer", "CANCELLED"),
        ("HTTP/1.1", "POST", "200"),
        ("HTTP/1.1", "POST", "400"),
        ("HTTP/1.1", "POST", "404"),
        ("HTTP", "-", "400"),
    ]
    inferred, unknown, streamed = lines[1], lines[2], lines[3]
    assert (inferred["model"], inferred["request_id"]) == ("identity", "g-1")
    assert inferred["received"] == infer_request("identity", "g-1", IN=numbers).ByteSize()
    assert inferred["sent"] > 8
    assert inferred["trace_id"] == lines[5]["trace_id"] == TRACE
    assert (unknown["model"], unknown["request_id"]) == ("nope", "g-2")
    assert streamed["sent"] == sum(answer.ByteSize() for answer in answers)
    assert streamed["duration_ms"] >= 200  # the model takes as long between its responses
    assert lines[4]["request_id"] == "s-2"
    of_http = lines[5]
    assert (of_http["path"], of_http["model"]) == (infer, "identity")
    assert (of_http["request_id"], of_http["received"]) == ("h-1", len(json.dumps(body)))
    assert of_http["peer"].startswith("127.0.0.1:")
    text = "\n".join(first)
    assert "sesame" not in text
    assert "98765" not in text
    (index,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (index["method"], index["path"]) == ("POST", "/v2/repository/index")


@pytest.mark.slow
def test_standard_output_takes_lines_of_text(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    log = tmp_path / "log"
    with serving(tmp_path / "models", log, "--access-log=-") as server:
        with urllib.request.urlopen(f"http://{server.http}/v2/health/live", timeout=60):
            pass
        with urllib.request.urlopen(server.metrics, timeout=60):
            pass
        wait_until(lambda: "GET /metrics status=200" in log.read_text())
    assert "HTTP/1.1 GET /v2/health/live status=200 received=0 sent=13" in log.read_text()


@pytest.mark.slow
def test_an_access_log_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with (
        pytest.raises(
            AssertionError, match=r"error: cannot open the access log: .*No such"
        ) as told,
        serving(tmp_path / "models", tmp_path / "log", f"--access-log={os.sep}nowhere/log"),
    ):
        pass
    assert "Traceback" not in str(told.value)

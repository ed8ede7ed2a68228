"""Records what a warm unary call walks in the server's own process: each function, in order.

Run as a program with a repository, whose model `m` takes `X`, and a file for the result. It serves
in this process, calls the model over gRPC and over HTTP, and ends. Of several calls that is kept
which all have in common: what falls into one of them by chance, such as a tick of a timer or a
model that was slow once, is not of its walk. Model processes are others, whose walk is not counted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPResponse
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import grpc

import penstock
from penstock.cli import main
from penstock.hosting.parent import in_flight
from penstock.protocol import grpc_service_pb2 as pb

_PRODUCT = str(Path(penstock.__file__).parent)
_STARTED = re.compile(r"Started (GRPCInferenceService|HTTPService) at \S+:(\d+)")
_WARM, _RECORDED = 30, 30
_QUICK = 5
"""Calls before one that is recorded, after which its model is known to be quick."""
_QUIET_SECONDS = 0.02
"""What a call leaves to be done is done by then."""

Step = tuple[str, str]


class Recorder:
    """Records the calls of functions of the package on the thread of the event loop."""

    def __init__(self) -> None:
        self._steps: list[Step] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self._steps is not None:
            code = frame.f_code
            if code.co_filename.startswith(_PRODUCT):
                self._steps.append((code.co_filename[len(_PRODUCT) + 1 :], code.co_qualname))

    def walk(self, call: Callable[[], object]) -> list[Step]:
        """What one call walks."""
        for _ in range(_QUICK):
            call()
        time.sleep(_QUIET_SECONDS)
        steps = self._steps = []
        call()
        time.sleep(_QUIET_SECONDS)
        self._steps = None
        return steps


def _measured(recorder: Recorder, call: Callable[[], object]) -> dict[str, int]:
    for _ in range(_WARM):
        call()
    walks = [recorder.walk(call) for _ in range(_RECORDED)]
    common = set.intersection(*map(set, walks))
    return {
        "files": len({file for file, _ in common}),
        "functions": len(common),
        "changes": min(_changes([step for step in walk if step in common]) for walk in walks),
    }


def _changes(walk: list[Step]) -> int:
    return sum(before[0] != after[0] for before, after in pairwise(walk))


def _over_grpc(port: str) -> Callable[[], object]:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"\0" * 4])
    request.inputs.add(name="X", datatype="INT32", shape=[1])
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", bytes, bytes)
    data = request.SerializeToString()
    return lambda: call(data)


def _over_http(port: str) -> Callable[[], object]:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [7]}
    body = json.dumps({"inputs": [tensor]})
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\ncontent-length: {len(body)}\r\n\r\n"
    message = (head + body).encode()  # in one piece: two might arrive together, or not

    def call() -> None:
        connection.sendall(message)
        response = HTTPResponse(connection)
        response.begin()
        answer = response.read()
        if response.status != 200:
            raise ValueError(answer)

    return call


def _ask(log: Path, result: Path, recorder: Recorder) -> None:
    try:
        ports: dict[str, str] = {}
        while len(ports) < 2:
            time.sleep(_QUIET_SECONDS)
            ports = dict(_STARTED.findall(log.read_text()))
        found = {
            "grpc": _measured(recorder, _over_grpc(ports["GRPCInferenceService"])),
            "http": _measured(recorder, _over_http(ports["HTTPService"])),
        }
        result.write_text(json.dumps(found))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def run(repository: Path, result: Path) -> int:
    """Serve until the walks are recorded; the exit status of the server."""
    log, recorder = result.with_suffix(".log"), Recorder()
    log.touch()
    threading.Thread(target=_ask, args=(log, result, recorder), daemon=True).start()
    options = [f"--model-repository={repository}", f"--log-file={log}", "--allow-metrics=false"]
    sys.argv = ["penstock", "serve", *options, "--grpc-port=0", "--http-port=0"]
    vars(in_flight)["_AHEAD"] = 1 << 60  # the model counts as quick, however slow the machine is
    sys.setprofile(recorder)
    return main()


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2])))

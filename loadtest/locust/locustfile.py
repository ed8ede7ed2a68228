"""Users of the demo's models for locust: of gRPC, of HTTP, and of OpenAI's endpoints.

    locust -f loadtest/locust/locustfile.py GrpcUser HttpUser --headless -u 8 -r 8 -t 30s

GRPC, HTTP and OPENAI name the addresses; a request with an error inside of its answer has failed.
"""

from __future__ import annotations

import json
import os
import time
from itertools import count

import grpc.experimental.gevent

grpc.experimental.gevent.init_gevent()  # before the first channel

import grpc  # noqa: E402
import numpy as np  # noqa: E402
from locust import FastHttpUser, User, constant, task  # noqa: E402

from penstock.protocol import grpc_service_pb2 as pb  # noqa: E402
from penstock.protocol import grpc_service_pb2_grpc as stubs  # noqa: E402

GRPC = os.environ.get("GRPC", "127.0.0.1:8001")
HTTP = os.environ.get("HTTP", "127.0.0.1:8000")
OPENAI = os.environ.get("OPENAI", HTTP)
MODEL = os.environ.get("MODEL", "tiny_llm")
_PROMPTS = ("The asyncio event loop", "A context manager", "An iterator is", "The json module")
_SAMPLING = json.dumps({"max_tokens": 16, "min_tokens": 16})
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
_VECTOR = np.arange(16, dtype="<i4")


class AnswerError(Exception):
    """An answer that came and is not right."""


class GrpcUser(User):
    """Unary calls and token streams on a connection of its own; four calls to a stream."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self.channel = grpc.insecure_channel(GRPC, options=_OPTIONS)
        self.stub = stubs.GRPCInferenceServiceStub(self.channel)
        self.numbers = count()

    def on_stop(self) -> None:
        self.channel.close()

    @task(4)
    def infer(self) -> None:
        """A vector doubled by `simple`."""
        request = pb.ModelInferRequest(model_name="simple")
        for name in ("INPUT0", "INPUT1"):
            request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
            request.raw_input_contents.append(_VECTOR.tobytes())
        begin, fault = time.perf_counter(), None
        try:
            answer = self.stub.ModelInfer(request, timeout=30)
            if answer.raw_output_contents[0] != (_VECTOR * 2).tobytes():
                raise AnswerError("the sum is wrong")
        except (grpc.RpcError, AnswerError) as error:
            fault = error
        self._fire("ModelInfer", begin, fault)

    @task(1)
    def generate(self) -> None:
        """Tokens of a prompt: the time to the first, the mean between them, and the whole."""
        number = next(self.numbers)
        begin = time.perf_counter()
        first = last = 0.0
        responses, fault = 0, None
        try:
            for message in self.stub.ModelStreamInfer(iter([_prompt(number)]), timeout=60):
                if message.error_message:
                    raise AnswerError(message.error_message)
                last = time.perf_counter()
                first = first or last
                responses += 1
            if not responses:
                raise AnswerError("the stream was empty")
        except (grpc.RpcError, AnswerError) as error:
            fault = error
        self._fire("ModelStreamInfer", begin, fault)
        if first:
            self._fire("time to the first response", begin, None, first)
        if responses > 1:
            mean = begin + (last - first) / (responses - 1)
            self._fire("time between responses", begin, None, mean)

    def _fire(self, name: str, begin: float, fault: Exception | None, end: float = 0.0) -> None:
        self.environment.events.request.fire(
            request_type="grpc",
            name=name,
            response_time=((end or time.perf_counter()) - begin) * 1e3,
            response_length=0,
            exception=fault,
            context=self.context(),
        )


class HttpUser(FastHttpUser):
    """Inference as JSON, and generation with events."""

    host = f"http://{HTTP}"
    wait_time = constant(0)

    @task(4)
    def infer(self) -> None:
        """A vector doubled by `simple`."""
        inputs = [
            {"name": name, "datatype": "INT32", "shape": [1, 16], "data": _VECTOR.tolist()}
            for name in ("INPUT0", "INPUT1")
        ]
        with self.rest("POST", "/v2/models/simple/infer", json={"inputs": inputs}) as answer:
            if answer.js is None or answer.js.get("outputs", [{}])[0].get("data", [None])[-1] != 30:
                answer.failure(f"the sum is wrong: {answer.text}")

    @task(1)
    def generate(self) -> None:
        """Tokens of a prompt as events."""
        body = {"text_input": _PROMPTS[0], "sampling_parameters": _SAMPLING, "stream": True}
        path = "/v2/models/tiny_llm/generate_stream"
        with self.client.post(path, json=body, catch_response=True) as answer:
            _check_events(answer, "text_output")


class OpenAiUser(FastHttpUser):
    """Chats as streams, for a server with OpenAI's endpoints."""

    host = f"http://{OPENAI}"
    wait_time = constant(0)

    @task
    def chat(self) -> None:
        """One question, and its answer as events."""
        messages = [{"role": "user", "content": _PROMPTS[1]}]
        body = {"model": MODEL, "messages": messages, "max_tokens": 16, "stream": True}
        with self.client.post("/v1/chat/completions", json=body, catch_response=True) as answer:
            _check_events(answer, "choices")


def _check_events(answer, key: str) -> None:  # type: ignore[no-untyped-def]
    """Fail an answer whose events are errors, or that has none."""
    lines = [line[6:] for line in (answer.text or "").splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    errors = [event["error"] for event in events if event.get("error")]
    if answer.status_code != 200 or errors or not any(key in event for event in events):
        answer.failure(f"status {answer.status_code}: {errors or 'no events'}")


def _prompt(number: int) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="tiny_llm", id=str(number))
    texts = {"text_input": _PROMPTS[number % len(_PROMPTS)], "sampling_parameters": _SAMPLING}
    for name, text in texts.items():
        tensor = request.inputs.add(name=name, datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(text.encode())
    request.inputs.add(name="stream", datatype="BOOL", shape=[1]).contents.bool_contents.append(
        True
    )
    return request

"""Users of the demo's models for locust: of gRPC, of HTTP, and of OpenAI's endpoints.

    locust -f loadtest/locust/locustfile.py GrpcUser HttpUser --headless -u 8 -r 8 -t 30s

GRPC, HTTP and OPENAI name the addresses; a request with an error inside of its answer has failed.
EncoderUser is for a server that has `minilm`; LeavingUser and SlowUser are those of a soak, for one
that has `repeat`, too.
"""

from __future__ import annotations

import json
import os
import random
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
_TOKENS = 16
_MANY_TOKENS = 256  # more than are read of a stream that is given up
_NUMBERS = 10_000  # that a slow reader asks for, more than the windows of a connection hold
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
_PAUSE = constant(float(os.environ.get("PAUSE", "0")))  # seconds between tasks
_VECTOR = np.arange(16, dtype="<i4")


class AnswerError(Exception):
    """An answer that came and is not right."""


class GrpcClient(User):
    """A user with a connection of its own."""

    abstract = True
    wait_time = _PAUSE

    def on_start(self) -> None:
        self.channel = grpc.insecure_channel(GRPC, options=_OPTIONS)
        self.stub = stubs.GRPCInferenceServiceStub(self.channel)
        self.numbers = count()

    def on_stop(self) -> None:
        self.channel.close()

    def _fire(self, name: str, begin: float, fault: Exception | None, end: float = 0.0) -> None:
        self.environment.events.request.fire(
            request_type="grpc",
            name=name,
            response_time=((end or time.perf_counter()) - begin) * 1e3,
            response_length=0,
            exception=fault,
            context=self.context(),
        )


class GrpcUser(GrpcClient):
    """Unary calls and token streams; four calls to a stream."""

    @task(4)
    def infer(self) -> None:
        """A vector doubled by `simple`."""
        begin, fault = time.perf_counter(), None
        try:
            _check_sum(self.stub.ModelInfer(_sum(), timeout=30))
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


class EncoderUser(GrpcClient):
    """Sentences for an encoder, which gets them in batches with those of others."""

    def on_start(self) -> None:
        super().on_start()
        self.known: dict[str, np.ndarray] = {}

    @task
    def embed(self) -> None:
        """A sentence, whose embedding has to be what it was before."""
        text = " ".join(_PROMPTS[: 1 + next(self.numbers) % len(_PROMPTS)])
        begin, fault = time.perf_counter(), None
        try:
            answer = self.stub.ModelInfer(_sentence(text), timeout=30)
            vector = np.frombuffer(answer.raw_output_contents[0], "<f4")
            if not np.allclose(vector, self.known.setdefault(text, vector), atol=1e-3):
                raise AnswerError("the embedding is another than before")
            if not np.any(vector):
                raise AnswerError("the embedding is empty")
        except (grpc.RpcError, AnswerError) as error:
            fault = error
        self._fire("ModelInfer, embeddings", begin, fault)


class LeavingUser(GrpcClient):
    """Calls and streams that are given up under way; what comes until then has to be right."""

    @task(2)
    def leave_call(self) -> None:
        """A call that is cancelled before or behind its answer."""
        begin, fault = time.perf_counter(), None
        call = self.stub.ModelInfer.future(_sum(), timeout=30)
        time.sleep(random.random() * 0.005)
        call.cancel()
        try:
            _check_sum(call.result())
        except grpc.FutureCancelledError:
            pass  # as it was asked for
        except (grpc.RpcError, AnswerError) as error:
            fault = error
        self._fire("ModelInfer, cancelled", begin, fault)

    @task(1)
    def leave_stream(self) -> None:
        """Some tokens of a prompt."""
        wanted = random.randrange(1, 30)
        begin, responses, fault = time.perf_counter(), 0, None
        stream = self.stub.ModelStreamInfer(
            iter([_prompt(next(self.numbers), _MANY_TOKENS)]), timeout=60
        )
        try:
            for message in stream:
                if message.error_message:
                    raise AnswerError(message.error_message)
                responses += 1
                if responses == wanted:
                    break
            if not responses:
                raise AnswerError("the stream was empty")
        except (grpc.RpcError, AnswerError) as error:
            fault = error
        stream.cancel()
        self._fire("ModelStreamInfer, cancelled", begin, fault)


class SlowUser(GrpcClient):
    """Numbers of `repeat`, read more slowly than they are made: all have to come, in order."""

    @task
    def read(self) -> None:
        """One long stream."""
        begin, fault = time.perf_counter(), None
        try:
            expected = 0
            for message in self.stub.ModelStreamInfer(iter([_numbers()]), timeout=300):
                raw = message.infer_response.raw_output_contents
                if message.error_message or raw[0] != expected.to_bytes(4, "little"):
                    raise AnswerError(message.error_message or f"number {expected} is wrong")
                expected += 1
                if expected % 100 == 0:
                    time.sleep(0.05)
            if expected != _NUMBERS:
                raise AnswerError(f"{expected} numbers came")
        except (grpc.RpcError, AnswerError) as error:
            fault = error
        self._fire("ModelStreamInfer, read slowly", begin, fault)


class HttpUser(FastHttpUser):
    """Inference as JSON, and generation with events."""

    host = f"http://{HTTP}"
    wait_time = _PAUSE

    @task(4)
    def infer(self) -> None:
        """A vector doubled by `simple`."""
        inputs = [
            {"name": name, "datatype": "INT32", "shape": [1, 16], "data": _VECTOR.tolist()}
            for name in ("INPUT0", "INPUT1")
        ]
        with self.rest("POST", "/v2/models/simple/infer", json={"inputs": inputs}) as answer:
            outputs = (answer.js or {}).get("outputs", [{}])
            if outputs[0].get("data", [None])[-1] != 30:
                answer.failure(f"the sum is wrong: {answer.text}")

    @task(1)
    def generate(self) -> None:
        """Tokens of a prompt as events."""
        body = {"text_input": _PROMPTS[0], "sampling_parameters": _sampling(), "stream": True}
        path = "/v2/models/tiny_llm/generate_stream"
        with self.client.post(path, json=body, catch_response=True) as answer:
            _check_events(answer, "text_output")


class OpenAiUser(FastHttpUser):
    """Chats as streams, for a server with OpenAI's endpoints."""

    host = f"http://{OPENAI}"
    wait_time = _PAUSE

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


def _sum() -> pb.ModelInferRequest:
    """A vector and itself, for `simple`."""
    request = pb.ModelInferRequest(model_name="simple")
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(_VECTOR.tobytes())
    return request


def _sentence(text: str) -> pb.ModelInferRequest:
    """One sentence for `minilm`."""
    request = pb.ModelInferRequest(model_name="minilm")
    tensor = request.inputs.add(name="TEXT", datatype="BYTES", shape=[1, 1])
    tensor.contents.bytes_contents.append(text.encode())
    return request


def _check_sum(answer: pb.ModelInferResponse) -> None:
    if answer.raw_output_contents[0] != (_VECTOR * 2).tobytes():
        raise AnswerError("the sum is wrong")


def _numbers() -> pb.ModelInferRequest:
    """Numbers that `repeat` sends one by one, at once."""
    request = pb.ModelInferRequest(model_name="repeat")
    tensors = {
        "IN": np.arange(_NUMBERS, dtype="<i4"),
        "DELAY": np.zeros(_NUMBERS, "<u4"),
        "WAIT": np.zeros(1, "<u4"),
    }
    for name, array in tensors.items():
        request.inputs.add(name=name, datatype=array.dtype.name.upper(), shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


def _sampling(tokens: int = _TOKENS) -> str:
    return json.dumps({"max_tokens": tokens, "min_tokens": tokens})


def _prompt(number: int, tokens: int = _TOKENS) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="tiny_llm", id=str(number))
    texts = {
        "text_input": _PROMPTS[number % len(_PROMPTS)],
        "sampling_parameters": _sampling(tokens),
    }
    for name, text in texts.items():
        tensor = request.inputs.add(name=name, datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(text.encode())
    request.inputs.add(name="stream", datatype="BOOL", shape=[1]).contents.bool_contents.append(
        True
    )
    return request

"""Every gRPC answer that was recorded from a running Triton, asked for again here."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict, ParseDict

from gateway.recorded_models import RecordedModels
from gateway.serving import serving
from harness.recorded import answers, needs_answers, write_models
from penstock.core.backend import Backend, find_backend
from penstock.models.loading import backends
from penstock.protocol import grpc_service_pb2 as pb
from penstock.settings import GrpcSettings
from rpc.serving import Client, connected

_FILES = ("grpc_metadata", "grpc_infer_ok", "grpc_infer_errors", "grpc_streams")

_ELSEWHERE = {
    "server_ready": "needs all models: asked of a whole server in tests/conformance",
    "model_statistics /": "lists all models",
    "repository_index": "lists all models",
    "repository_index ready": "lists all models",
    "ensemble": "needs its parts: asked in tests/conformance",
    "ensemble missing input": "needs its parts: asked in tests/conformance",
    "ensemble wrong dtype": "needs its parts: asked in tests/conformance",
    "ensemble of decoupled on ModelInfer": "needs its parts: asked in tests/conformance",
    "bls decoupled": "calls between models are the Python backend's",
    "cache first": "needs a cache: asked of a whole server in tests/conformance",
    "failer mode 4": "outputs that were not declared are dropped by the Python backend",
    "dec_failer mode 3": "the stand-in does not flag its last response",
    "repeat thread 2, two requests": "no order is promised between requests of such models",
    "failer mode 8": "a model of Python that never answers",
    "failer mode 10": "a text of the Python backend",
    "dec_failer mode 9": "sending after the end is the Python backend's",
    "dec_failer mode 9 empty-final": "sending after the end is the Python backend's",
    "deadline 0.2s on slow": "has a test of its own",
    "custom metrics": "metrics of models are the Python backend's",
    **dict.fromkeys(
        (
            "model response parameters",
            "failer raise",
            "dec_failer mode 5",
            "dec_failer mode 5 empty-final",
            "dec_failer mode 6 empty-final",
            "dec_failer mode 7",
            "dec_failer mode 7 empty-final",
        ),
        "a text of the Python backend: asked of a whole server in tests/conformance",
    ),
}
"""Requests that the stand-ins of the models cannot answer, and why."""

_OTHER_MODELS = re.compile(r"seq_|bls_|reshape$|queue_policy$")
"""Models that do more than their stand-ins."""


def _cases(*, statistics: bool) -> list[Any]:
    found = [
        pytest.param(case, id=f"{file}: {name}")
        for file in _FILES
        for name, case in answers(f"{file}.json").items()
        if (case["rpc"] == "ModelStatistics") == statistics
    ]
    # Without the recorded answers one test is left, which says that they are missing.
    return found or [{}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(
    local: GrpcSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    """A client of a server with all of the models that it supports."""
    async with _client(local, tmp_path_factory.mktemp("models")) as client:
        yield client


@asynccontextmanager
async def _client(local: GrpcSettings, folder: Path) -> AsyncIterator[Client]:
    repository = write_models("good", folder)
    for config in repository.glob("repeat*/config.pbtxt"):
        config.write_text(config.read_text().replace('"python"', '"repeat"'))
    names = [folder.name for folder in repository.iterdir()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "find_backend", _stand_in)
        async with (
            serving(repository, names, lenient=True) as server,
            connected(server, local) as client,
        ):
            yield client


@needs_answers
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", _cases(statistics=False))
async def test_answer_is_the_recorded_one(
    case: dict[str, Any], request: pytest.FixtureRequest, client: Client
) -> None:
    """Code, text and messages are as recorded, apart from what differs by nature."""
    _skip_others(request.node.callspec.id, _model(case))
    ask = _ask_stream if case["rpc"] == "ModelStreamInfer" else _ask
    assert await ask(client, case) == _recorded(case)


@needs_answers
@pytest.mark.slow
@pytest.mark.parametrize("case", _cases(statistics=True))
async def test_statistics_of_a_new_server_are_the_recorded_ones(
    case: dict[str, Any], request: pytest.FixtureRequest, local: GrpcSettings, tmp_path: Path
) -> None:
    _skip_others(request.node.callspec.id, _model(case))
    async with _client(local, tmp_path) as client:
        assert await _ask(client, case) == _recorded(case)


def _stand_in(backend: str) -> type[Backend]:
    return find_backend(backend) if backend == "repeat" else RecordedModels


def _skip_others(test: str, model: str) -> None:
    reason = _ELSEWHERE.get(test.partition(": ")[2])
    if reason is None and _OTHER_MODELS.match(model):
        reason = "needs its own backend: asked of a whole server in tests/conformance"
    if reason is not None:
        pytest.skip(reason)


def _model(case: dict[str, Any]) -> str:
    """The model that is asked; of a stream that of the first request."""
    asked = [case.get("request"), *case.get("requests", [])]
    return next((str(request.get("model_name", "")) for request in asked if request), "")


async def _ask(client: Client, case: dict[str, Any]) -> Any:
    message = _message(case["request"], getattr(pb, case["rpc"] + "Request"))
    try:
        answer = await client.call(case["rpc"], message, metadata=_metadata(case))
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details()
    return "OK", _masked(_as_dict(answer))


async def _ask_stream(client: Client, case: dict[str, Any]) -> Any:
    """Asks again where the client was still writing when the status came, and so missed it."""
    answer = await _ask_stream_once(client, case)
    while answer[1] == "Internal error from Core":
        answer = await _ask_stream_once(client, case)
    return answer


async def _ask_stream_once(client: Client, case: dict[str, Any]) -> Any:
    messages = [_message(request, pb.ModelInferRequest) for request in case["requests"]]
    seen: list[Any] = []
    try:
        answers = client.stream(iter(messages), metadata=_metadata(case))
        async for response in answers:
            seen += [_as_dict(response)]
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details(), _masked(seen)
    return "OK", _masked(seen)


def _recorded(case: dict[str, Any]) -> Any:
    if case["code"] != "OK" and "responses" in case:
        return case["code"], case["message"], _masked(case["responses"])
    if case["code"] != "OK":
        return case["code"], case["message"]
    return "OK", _masked(case.get("response", case.get("responses")))


def _message(request: Mapping[str, Any], kind: Any) -> Any:
    return ParseDict({k: v for k, v in request.items() if k != "raw_input_contents_bytes"}, kind())


def _as_dict(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


def _metadata(case: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in case.get("metadata", ())]


_VARYING = re.compile(r'"(ns|last_inference|version)": "[0-9.]{3,}(a\d+|\.dev\d+)?"')


def _masked(value: Any) -> Any:
    """The value without durations, dates and the server's version."""
    return json.loads(_VARYING.sub(r'"\1": "*"', json.dumps(value)))

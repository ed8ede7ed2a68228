"""Requests that schemathesis makes from the description: answers are those described.

Beside a model of tensors there are a language model and a text encoder that speak OpenAI's API.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CheckContext
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from backends.openai_kit.scripted import ScriptedModel, http_of
from gateway.serving import LOCAL, serving
from penstock.core.backend import Backend, InstanceContext, Outcome, WithApplication, find_backend
from penstock.core.errors import InternalError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.http_exchange import ASGI_DESCRIPTION
from penstock.core.request import InferenceRequest
from penstock.gateway.app import open_gateway
from penstock.gateway.openai.routes import is_answered
from penstock.gateway.openapi.document import document
from penstock.gateway.openapi.model_descriptions import add_models
from penstock.models.loading import backends
from penstock.settings import OpenAiSettings
from penstock_backends.openai_kit.asgi import OpenAiApplication
from penstock_backends.openai_kit.embeddings import Embeddings
from penstock_backends.openai_kit.encoders import encoder_app

pytestmark = pytest.mark.slow

_CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
_CONFIG = """
backend: "identity"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""


class _Lengths:
    """An encoder of texts by their lengths."""

    name, matryoshka = "encoder", True

    async def count_tokens(self, texts: Sequence[str]) -> int:
        return sum(map(len, texts))

    async def embed(self, texts: Sequence[str], known: Any) -> Embeddings:
        return Embeddings(np.array([[len(text), 1] for text in texts], np.float32), len(texts))


def _application(name: str) -> OpenAiApplication:
    return encoder_app(_Lengths()) if name == "encoder" else ScriptedModel().app()


class _Speaker(WithApplication, Backend):
    """A language model or an encoder, as the name of the model says."""

    async def initialize(self, context: InstanceContext) -> None:
        self._name = context.config.name

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [InternalError("this model only talks") for _ in requests]

    async def openai_app(self) -> OpenAiApplication:
        return _application(self._name)


async def _kits() -> dict[str, Any]:
    """What the models tell of themselves."""
    found = {}
    for name in ("llm", "encoder"):
        async with http_of(_application(name)) as http:
            found[name] = (await http.get(ASGI_DESCRIPTION)).json()
    return found


def _described() -> dict[str, Any]:
    """The description, of which models that there are."""
    described = document(openai=True)
    add_models(described, asyncio.run(_kits()), is_answered)
    for operations in described["paths"].values():
        for operation in operations.values():
            for one in operation["parameters"]:
                if one["name"] == "model":
                    one["schema"] = {"enum": ["numbers", "other"]}
            if operation["tags"] == ["openai"] and "requestBody" in operation:
                operation["requestBody"]["content"]["application/json"]["schema"] = _named(
                    operation["requestBody"]["content"]["application/json"]["schema"]
                )
    return described


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, of bodies that name a model which there is, most of the time."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_named(one) for one in schema["anyOf"]]}
    given = {**schema["properties"], "model": {"enum": ["llm", "encoder", "numbers"]}}
    required = sorted({*schema.get("required", ()), "model"})
    return {**schema, "properties": given, "required": required}


_SCHEMA = schemathesis.openapi.from_dict(_described())
_OPERATIONS: dict[str, Any] = {
    one.ok().label: one.ok() for one in _SCHEMA.get_all_operations() if isinstance(one, Ok)
}


@asynccontextmanager
async def _opened(repository: Path) -> AsyncIterator[int]:
    async with (
        serving(repository, ["numbers", "llm", "encoder"], explicit_control=True) as server,
        open_gateway(server, LOCAL, ExitDeadline(1), openai=OpenAiSettings()) as port,
    ):
        yield port


def _found(name: str) -> type[Backend]:
    return _Speaker if name == "speaker" else find_backend(name)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a loop of its own, since schemathesis asks and waits."""
    repository = tmp_path_factory.mktemp("models")
    for name in ("numbers", "llm", "encoder"):
        (repository / name / "1").mkdir(parents=True)
        config = _CONFIG if name == "numbers" else 'backend: "speaker"'
        (repository / name / "config.pbtxt").write_text(config)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opened = _opened(repository)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "find_backend", _found)
        port = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result(30)
        yield f"http://127.0.0.1:{port}"
        asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def no_fault(_: CheckContext, response: schemathesis.Response, __: Any) -> bool | None:
    """Errors may be 500, as Triton's are, but not for a fault of the server."""
    assert "see the server's log" not in response.text
    return None


@pytest.mark.parametrize("label", _OPERATIONS)
def test_answers_are_as_described(label: str, url: str) -> None:
    @settings(
        max_examples=4,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=_OPERATIONS[label].as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(base_url=url, checks=[*_CHECKS, no_fault])

    check()

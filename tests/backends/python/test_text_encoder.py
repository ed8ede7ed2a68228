"""OpenAI's embeddings of models in Python, and of ensembles, on a server as a user starts it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256

import httpx
import openai
import pytest

from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.slow

CODE = """
import asyncio

import numpy as np

from penstock.model import Model, Request, Response


class Lengths(Model):
    async def infer(self, request: Request) -> Response:
        texts = [text.decode() for text in request["TEXT"].ravel()]
        if "wait" in texts:
            await asyncio.Event().wait()
        if "fail" in texts:
            raise ValueError("no such text")
        return Response({"EMBEDDING": np.array([[len(t), t.count("a")] for t in texts], "f4")})
"""
TENSORS = """
max_batch_size: 4
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "EMBEDDING" data_type: TYPE_FP32 dims: 2 }
"""
ENSEMBLE = """
ensemble_scheduling { step {
  model_name: "lengths" model_version: -1
  input_map { key: "TEXT" value: "TEXT" } output_map { key: "EMBEDDING" value: "EMBEDDING" }
} }
"""
OTHER = TENSORS.replace("EMBEDDING", "OUT")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("encoders")
    for name, config, code in (
        ("lengths", f'backend: "python"{TENSORS}', CODE),
        ("whole", f'platform: "ensemble"{TENSORS}{ENSEMBLE}', ""),
        ("other", f'backend: "python"{OTHER}', CODE.replace("EMBEDDING", "OUT")),
    ):
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(config)
        if code:
            (folder / "models" / name / "1" / "model.py").write_text(code)
    keys = {name: [f"sha256:{sha256(name.encode()).hexdigest()}"] for name in ("red", "blue")}
    tenants = {"tenants": {name: {"api_keys": hashes} for name, hashes in keys.items()}}
    (folder / "tenants.json").write_text(json.dumps(tenants))
    options = ("--http-docs=true", f"--tenants={folder / 'tenants.json'}")
    with serving(folder / "models", folder / "log", *options) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    base = f"http://{served.http}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.mark.parametrize("model", ["lengths", "whole"])
def test_embeddings_are_the_tensors(client: openai.OpenAI, model: str) -> None:
    """More texts than a batch holds are several batches."""
    texts = ["a", "", "banana", "bb", "ccc", "añ"]
    answer = client.embeddings.create(model=model, input=texts)
    vectors = [one.embedding for one in answer.data]
    assert vectors == [[len(text), text.count("a")] for text in texts]
    assert answer.usage.prompt_tokens == 0


def test_a_failure_of_the_model_is_told(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="no such text"):
        client.embeddings.create(model="lengths", input=["fail"])
    with pytest.raises(openai.BadRequestError, match="'input' must not be empty"):
        client.embeddings.create(model="lengths", input=[])
    with pytest.raises(openai.NotFoundError, match="does not serve /v1/completions"):
        client.completions.create(model="lengths", prompt="a")


@pytest.mark.parametrize("model", ["lengths", "whole"])
def test_a_request_that_waits_for_the_model_is_stopped(served: Served, model: str) -> None:
    base = f"http://{served.http}"
    body = {"model": model, "input": "wait"}
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{base}/v1/embeddings", json=body, timeout=1, verify=False)

    def in_flight() -> float:
        lines = httpx.get(served.metrics, verify=False).text.splitlines()
        found = [one for one in lines if one.startswith("penstock_in_flight_requests")]
        assert found
        return sum(float(one.rpartition(" ")[2]) for one in found)

    wait_until(lambda: in_flight() == 0)


def test_requests_are_counted_for_their_tenant(served: Served, client: openai.OpenAI) -> None:
    for tenant in ("red", "red", "blue"):
        own = client.with_options(api_key=tenant)
        own.embeddings.create(model="lengths", input=["a", "b"])
    page = httpx.get(served.metrics, verify=False).text
    found = re.findall(r'tenant_requests_total{tenant="(\w+)",model="lengths".*} (\d+)', page)
    assert {("red", "2"), ("blue", "1")} <= set(found)


def test_models_of_other_shapes_have_no_routes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="model 'other' has no OpenAI routes"):
        client.embeddings.create(model="other", input="a")


def test_encoders_are_described(served: Served) -> None:
    paths = httpx.get(f"http://{served.http}/openapi.json", timeout=20, verify=False).json()[
        "paths"
    ]
    assert paths["/v1/embeddings"]["post"]["description"] == "TextEncoder: lengths, whole"
    assert "/v1/chat/completions" not in paths

"""OpenAI's API of text encoders, by the exchanges of a server."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from backends.exchanging import application, begin, whole
from backends.tensor_models import graphs
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.core.tensor import DataType, Tensor
from penstock_backends.onnxruntime import OnnxRuntimeBackend

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]
TEXTS = ["red", "green blue", "", "one two three", "blue"]


@pytest.fixture
def files(version: Path) -> Path:
    """An encoder and its tokenizer, in the directory of the version."""
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json")
    return version


async def asked(backend: OnnxRuntimeBackend, path: str, body: Any) -> tuple[int, Any]:
    async with application(backend) as app:
        status, text = await whole(begin(app, path, body))
        return status, json.loads(text)


@pytest.mark.parametrize("most", [0, 2, 8])
async def test_embeddings_are_the_models_vectors(
    open_backend: Open, files: Path, most: int
) -> None:
    """Whatever fits a batch; without batches one text after the other."""
    config = graphs.text_config(max_batch_size=most)
    if not most:
        config = replace(config, output=(graphs.tensor_out("EMBEDDING", DataType.FP32, -1, 8),))
    backend = await open_backend(config)
    shape = (len(TEXTS), 1) if most else (len(TEXTS),)
    request = graphs.request(TEXT=Tensor.from_strings(TEXTS, shape))
    (outcome,) = await backend.execute([request])
    body = {"model": "m", "input": TEXTS}
    status, answer = await asked(backend, "/v1/embeddings", body)
    assert status == 200
    vectors = np.array([one["embedding"] for one in answer["data"]])
    assert_allclose(vectors, graphs.tensor(outcome, "EMBEDDING").numpy(), atol=1e-5)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 7


async def test_tokens_of_texts_are_reported(open_backend: Open, files: Path) -> None:
    told: list[tuple[int, int, int]] = []
    body = {"model": "m", "input": TEXTS}
    async with application(await open_backend(graphs.text_config())) as app:
        stream = begin(app, "/v1/embeddings", body, report_usage=lambda *one: told.append(one))
        _, text = await whole(stream)
    assert told == [(json.loads(text)["usage"]["prompt_tokens"], 0, 0)]


async def test_dimensions_need_a_model_that_was_trained_for_them(
    open_backend: Open, files: Path
) -> None:
    body = {"model": "m", "input": "red", "dimensions": 3}
    status, answer = await asked(await open_backend(graphs.text_config()), "/v1/embeddings", body)
    assert (status, answer["error"]["param"]) == (400, "dimensions")
    parameters = graphs.parameters(penstock__matryoshka="true")
    config = graphs.text_config(parameters=parameters)
    status, answer = await asked(await open_backend(config), "/v1/embeddings", body)
    vector = answer["data"][0]["embedding"]
    assert len(vector) == 3
    assert np.linalg.norm(vector) == pytest.approx(1)


async def test_documents_are_ranked_by_the_model(open_backend: Open, files: Path) -> None:
    body = {"query": "blue", "documents": TEXTS, "top_n": 1}
    status, answer = await asked(await open_backend(graphs.text_config()), "/v1/rerank", body)
    assert status == 200
    assert answer["results"][0]["index"] == 4
    assert answer["results"][0]["relevance_score"] == pytest.approx(1)


async def test_an_error_of_one_batch_is_the_answer(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.text_config(max_batch_size=1))

    async def fail(requests: Any) -> Any:
        raise UnavailableError("gone")

    backend.execute = fail  # type: ignore[method-assign]
    body = {"model": "m", "input": ["red", "blue"]}
    status, answer = await asked(backend, "/v1/embeddings", body)
    assert (status, answer["error"]["message"]) == (503, "gone")


async def test_other_models_have_no_application(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx")
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    async with application(backend) as app:
        with pytest.raises(InvalidRequestError, match="no OpenAI routes"):
            await whole(begin(app, "/v1/embeddings", {}))

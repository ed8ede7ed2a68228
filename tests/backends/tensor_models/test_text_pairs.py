"""Cross-encoders: two inputs of texts, read together, and the API that ranks by them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal
from tokenizers import Tokenizer as Inner

from backends.exchanging import application, begin, whole
from backends.tensor_models import graphs
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.tensor_models.tokenizer import Tokenizer

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]
PASSAGES = ["one", "red green", "blue", "red red red", "", "two red " * 30]
SCORES = [0, 2, 0, 3, 0, 30]
"""How often words of the query `red green` are in each passage."""


@pytest.fixture
def files(version: Path) -> Path:
    """A cross-encoder and its tokenizer, in the directory of the version."""
    graphs.save_cross_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json")
    return version


def pairs(queries: list[str], passages: list[str]) -> InferenceRequest:
    tensors = [Tensor.from_strings(texts, (len(texts), 1)) for texts in (queries, passages)]
    return graphs.request(QUERY=tensors[0], PASSAGE=tensors[1])


async def test_each_pair_is_read_together(open_backend: Open, files: Path) -> None:
    """Whatever the lengths of those batched with it."""
    backend = await open_backend(graphs.pair_config())
    many = pairs(["red green"] * len(PASSAGES), PASSAGES)
    outcomes = await backend.execute([many, pairs(["blue"], ["blue one"])])
    first, second = (graphs.tensor(outcome, "SCORE").numpy() for outcome in outcomes)
    assert_array_equal(first, [[score] for score in SCORES])
    assert_array_equal(second, [[1]])


async def test_a_text_without_its_other_fails_alone(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.pair_config())
    lonely = graphs.request(QUERY=Tensor.from_strings(["red"], (1, 1)))
    uneven = pairs(["red", "blue"], ["red"])
    missing, odd, fine = await backend.execute([lonely, uneven, pairs(["red"], ["red"])])
    assert isinstance(missing, InvalidRequestError)
    assert "'PASSAGE' is missing" in missing.message
    assert isinstance(odd, InvalidRequestError)
    assert "hold 2 and 1 texts" in odd.message
    assert_array_equal(graphs.tensor(fine, "SCORE").numpy(), [[1]])


async def test_three_texts_are_no_pair(open_backend: Open, files: Path) -> None:
    config = graphs.pair_config()
    third = graphs.tensor_in("THIRD", DataType.BYTES, 1)
    with pytest.raises(ConfigError, match="or two of them for pairs"):
        OnnxRuntimeBackend.check_config(replace(config, input=(*config.input, third)))


@pytest.mark.parametrize(
    ("query", "passage"), [("red blue " * 3000, "one"), ("one", "red, blue. " * 3000)]
)
def test_a_long_side_is_cut_to_the_tokens_of_the_whole(
    tmp_path: Path, query: str, passage: str
) -> None:
    file = graphs.save_tokenizer(tmp_path / "tokenizer.json", longest=20)
    tokenizer = Tokenizer(Inner.from_file(str(file)), graphs.pair_config())
    read = tokenizer.texts.read_pairs([(query, passage)])
    (made,) = tokenizer.encode(read)
    assert made.ids == Inner.from_file(str(file)).encode(query, passage).ids
    assert sum(map(len, read[0])) < 2000


async def ranked(backend: OnnxRuntimeBackend, path: str, body: Any) -> tuple[int, Any]:
    async with application(backend) as app:
        status, text = await whole(begin(app, path, body))
        return status, json.loads(text)


@pytest.mark.parametrize("most", [16, 2])
async def test_documents_are_ranked_by_the_scores_of_pairs(
    open_backend: Open, files: Path, most: int
) -> None:
    """In as many requests as batches of the model are needed."""
    backend = await open_backend(graphs.pair_config(max_batch_size=most))
    body = {"query": "red green", "documents": PASSAGES, "top_n": 3}
    status, answer = await ranked(backend, "/v1/rerank", body)
    assert status == 200
    found = [(one["index"], one["relevance_score"]) for one in answer["results"]]
    assert found == [(5, 30), (3, 3), (1, 2)]
    assert answer["usage"]["total_tokens"] == 5 * 6 + 67  # of the query with each, and of all


async def test_pairs_are_scored(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.pair_config())
    body = {"text_1": ["red", "blue one"], "text_2": ["red red", "one"]}
    _, answer = await ranked(backend, "/v1/score", body)
    assert [one["score"] for one in answer["data"]] == [2, 1]


async def test_a_cross_encoder_has_no_vectors(open_backend: Open, files: Path) -> None:
    status, _ = await ranked(
        await open_backend(graphs.pair_config()), "/v1/embeddings", {"model": "m", "input": "red"}
    )
    assert status == 404


async def test_a_query_is_not_multiplied_without_bound(open_backend: Open, files: Path) -> None:
    """Each document would have a copy of it."""
    body = {"query": "red " * 10_000, "documents": ["blue"] * 500}
    status, answer = await ranked(await open_backend(graphs.pair_config()), "/v1/rerank", body)
    assert status == 400
    assert "fewer documents" in answer["error"]["message"]

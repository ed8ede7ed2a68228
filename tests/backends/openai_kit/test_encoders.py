"""Embeddings, rerank and score over a scripted encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from openai.types import CreateEmbeddingResponse

from backends.openai_kit.scripted import client_of, post
from penstock_backends.openai_kit.embeddings import Embeddings
from penstock_backends.openai_kit.encoders import encoder_app

VECTORS = {"north": (3.0, 0.0), "east": (0.0, 2.0), "northeast": (1.0, 1.0)}


class Compass:
    """An encoder that knows three words."""

    name = "compass"

    def __init__(self, *, matryoshka: bool = False) -> None:
        self.matryoshka = matryoshka

    async def count_tokens(self, texts: Sequence[str]) -> int:
        return len(texts)

    async def embed(self, texts: Sequence[str], known: Any) -> Embeddings:
        return Embeddings(np.array([VECTORS[text] for text in texts], np.float32), len(texts))


APP = encoder_app(Compass())


@pytest.mark.contract("OA-04")
@pytest.mark.parametrize("form", ["float", "base64"])
async def test_embeddings_by_the_official_client(form: Any) -> None:
    answer = await client_of(APP).embeddings.create(
        model="compass", input=["north", "east"], encoding_format=form
    )
    assert answer.usage.prompt_tokens == 2
    if form == "float":
        assert [one.embedding for one in answer.data] == [[3.0, 0.0], [0.0, 2.0]]
        CreateEmbeddingResponse.model_validate(answer.model_dump(), strict=True)
    plain = await client_of(APP).embeddings.create(model="compass", input="north")
    assert plain.data[0].embedding == [3.0, 0.0]


@pytest.mark.contract("OA-04")
async def test_dimensions_are_the_first_numbers_at_length_one() -> None:
    body = {"model": "compass", "input": "northeast", "dimensions": 1}
    answer = await post(encoder_app(Compass(matryoshka=True)), "/v1/embeddings", body)
    assert answer.json()["data"][0]["embedding"] == [1.0]


async def test_documents_are_ranked() -> None:
    body = {"query": "north", "documents": ["east", "northeast", "north"], "top_n": 2}
    answer = (await post(APP, "/v1/rerank", body)).json()
    assert [one["index"] for one in answer["results"]] == [2, 1]
    assert answer["results"][1]["relevance_score"] == pytest.approx(0.5**0.5)
    assert answer["results"][0]["document"] == {"text": "north"}
    assert answer["usage"]["total_tokens"] == 4


@pytest.mark.parametrize(
    ("first", "second", "scores"),
    [
        ("north", ["east", "north"], [0, 1]),
        (["north", "east"], ["north", "north"], [1, 0]),
        ("north", "northeast", [0.5**0.5]),
    ],
)
async def test_pairs_are_scored(first: Any, second: Any, scores: list[float]) -> None:
    answer = await post(APP, "/v1/score", {"text_1": first, "text_2": second})
    assert [one["score"] for one in answer.json()["data"]] == pytest.approx(scores)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"model": "m", "input": []}, "input"),
        ("/v1/embeddings", {"model": "m", "input": [1, 2]}, "input"),
        ("/v1/embeddings", {"model": "m", "input": "north", "dimensions": 1}, "dimensions"),
        ("/v1/embeddings", {"model": "m", "input": "north", "encoding_format": "x"}, None),
        ("/v1/embeddings", {"model": "m", "input": "a" * (1 << 21)}, "input"),
        ("/v1/embeddings", {"model": "m", "input": ["a"] * 3000}, "input"),
        ("/v1/embeddings", {"model": "m", "inputs": "north"}, "inputs"),
        ("/v1/rerank", {"query": "north", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "north", "documents": ["east"], "top_n": 0}, "top_n"),
        ("/v1/score", {"text_1": ["north", "east"], "text_2": ["north"]}, "text_1"),
        ("/v1/score", {"text_1": [], "text_2": []}, "text_1"),
    ],
)
async def test_what_an_encoder_cannot_keep_is_refused(path: str, body: Any, param: Any) -> None:
    answer = await post(APP, path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == (param or "encoding_format")


@pytest.mark.parametrize(("most", "status"), [(4096, 200), (1, 200), (0, 200), (-1, 400)])
async def test_a_length_of_documents_that_cuts_none_is_no_matter(most: int, status: int) -> None:
    """Haystack's ranker of Cohere's API sends 4096 where nobody asked for it."""
    body = {"query": "north", "documents": ["east"], "max_tokens_per_doc": most}
    assert (await post(APP, "/v2/rerank", body)).status_code == status


async def test_documents_are_not_cut_shorter_than_the_model_does() -> None:
    class Uncounted(Compass):
        async def count_tokens(self, texts: Sequence[str]) -> int:
            return 0

    body = {"query": "north", "documents": ["east"], "max_tokens_per_doc": 3}
    answer = await post(encoder_app(Uncounted()), "/v2/rerank", body)
    assert answer.json()["error"]["param"] == "max_tokens_per_doc"

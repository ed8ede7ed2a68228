"""POST /v1/embeddings, /v1/rerank and /v1/score: text encoders with one vector for each text."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from openai.types.embedding_create_params import EmbeddingCreateParams

from penstock.backend import Array
from penstock_backends.openai_kit.asgi import Answer, Exchange, OpenAiApplication, Route
from penstock_backends.openai_kit.embeddings import Embeddings, Scores
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.json_body import BodyReader, read_object
from penstock_backends.openai_kit.reranking import (
    LONGEST_BODY,
    check_texts,
    rerank_routes,
    usage_answer,
)


class Encoder(Protocol):
    """A text encoder that is loaded."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def matryoshka(self) -> bool:
        """Whether the beginning of a vector is a vector, as the model was trained for."""

    async def embed(self, texts: Sequence[str], known: Mapping[str, Any]) -> Embeddings:
        """The vectors of texts; raises `InferenceError`.

        `known` is `Exchange.known`.
        """

    async def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of all texts together, as far as the model reads them; 0 if nobody knows."""


def encoder_app(encoder: Encoder) -> OpenAiApplication:
    """The application of a text encoder."""
    endpoint = _Endpoint(encoder)
    embeddings = Route(endpoint.embeddings, (endpoint.texts,))
    routes = {"/v1/embeddings": embeddings, **rerank_routes(_Cosines(encoder))}
    return OpenAiApplication("TextEncoder", routes, LONGEST_BODY)


class _Endpoint:
    """The embeddings of one encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.texts = BodyReader(EmbeddingCreateParams, ignore_unknown=False)

    async def embeddings(self, exchange: Exchange) -> Answer:
        """Vectors of texts."""
        fields = self.texts.check(read_object(exchange.body), exchange.parameters)
        given = fields["input"]
        texts = [given] if isinstance(given, str) else given
        check_texts("input", texts)
        check_dimensions(fields, matryoshka=self._encoder.matryoshka)
        return embeddings_answer(await self._encoder.embed(texts, exchange.known), fields, exchange)


class _Cosines:
    """An encoder as a scorer: the cosine of the vectors of each pair."""

    def __init__(self, encoder: Encoder) -> None:
        self.name = encoder.name
        self.count_tokens = encoder.count_tokens
        self._encoder = encoder

    async def score(
        self, ones: Sequence[str], others: Sequence[str], known: Mapping[str, Any]
    ) -> Scores:
        found = await self._encoder.embed([*ones, *others], known)
        first, second = np.split(_normalized(found.rows), [len(ones)])
        return Scores((first * second).sum(axis=1).tolist(), found.tokens)


def check_dimensions(fields: Mapping[str, Any], *, matryoshka: bool) -> None:
    """Refuse to cut vectors of a model that was not trained for it."""
    if "dimensions" in fields and not matryoshka:
        refuse_field("dimensions", "'dimensions' is not supported: the model has its own")


def embeddings_answer(found: Embeddings, fields: Mapping[str, Any], exchange: Exchange) -> bytes:
    """Vectors as the fields of a request ask for them."""
    rows = _shortened(found.rows, fields.get("dimensions"))
    encode = _base64 if fields.get("encoding_format") == "base64" else np.ascontiguousarray
    data = [
        {"object": "embedding", "index": index, "embedding": encode(row)}
        for index, row in enumerate(rows)
    ]
    answer = {"object": "list", "data": data, "model": fields["model"]}
    return usage_answer(answer, found.tokens, exchange)


def _shortened(rows: Array, size: int | None) -> Array:
    """The first numbers of each row, at length one again."""
    if size is None:
        return rows
    if not 1 <= size <= rows.shape[1]:
        refuse_field("dimensions", f"'dimensions' must be from 1 to {rows.shape[1]}, not {size}")
    return _normalized(rows[:, :size])


def _normalized(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    normalized: Array = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return normalized


def _base64(row: Array) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()

"""POST /v1/embeddings, /v1/rerank and /v1/score: text encoders with one vector for each text."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NotRequired, Protocol

import numpy as np
import orjson
from openai.types.embedding_create_params import EmbeddingCreateParams
from typing_extensions import TypedDict

from penstock.backend import Array
from penstock_backends.openai_kit.asgi import Answer, Exchange, OpenAiApplication, Route
from penstock_backends.openai_kit.embeddings import Embeddings
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.json_body import BodyReader, read_object

_MOST_TEXTS: Final = 2048
"""OpenAI's own limit."""
_MOST_CHARACTERS: Final = 1 << 20
_LONGEST_BODY: Final = 8 << 20


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


class _Rerank(TypedDict):
    model: NotRequired[str]
    query: str
    documents: list[str]
    max_tokens_per_doc: NotRequired[int]
    top_n: NotRequired[int]
    return_documents: NotRequired[bool]


class _Score(TypedDict):
    model: NotRequired[str]
    text_1: str | list[str]
    text_2: str | list[str]
    encoding_format: NotRequired[str]


def encoder_app(encoder: Encoder) -> OpenAiApplication:
    """The application of a text encoder."""
    endpoints = _Endpoints(encoder)
    rerank = Route(endpoints.rerank, (endpoints.reranks,))
    score = Route(endpoints.score, (endpoints.scores,))
    routes = {
        "/v1/embeddings": Route(endpoints.embeddings, (endpoints.texts,)),
        "/v1/rerank": rerank,
        "/v1/score": score,
        "/rerank": rerank,
        "/v2/rerank": rerank,
        "/score": score,
    }
    return OpenAiApplication("TextEncoder", routes, _LONGEST_BODY)


class _Endpoints:
    """The endpoints of one encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.texts = BodyReader(EmbeddingCreateParams, ignore_unknown=False)
        self.reranks = BodyReader(_Rerank, ignore_unknown=False)
        self.scores = BodyReader(_Score, ignore_unknown=False)

    async def embeddings(self, exchange: Exchange) -> Answer:
        """Vectors of texts."""
        fields = self.texts.check(read_object(exchange.body), exchange.parameters)
        given = fields["input"]
        texts = [given] if isinstance(given, str) else given
        _check_texts("input", texts)
        check_dimensions(fields, matryoshka=self._encoder.matryoshka)
        return embeddings_answer(await self._encoder.embed(texts, exchange.known), fields, exchange)

    async def rerank(self, exchange: Exchange) -> Answer:
        """Documents by their likeness to a query, the most alike first."""
        fields = self.reranks.check(read_object(exchange.body), exchange.parameters)
        documents = fields["documents"]
        _check_texts("query", [fields["query"]])
        _check_texts("documents", documents, beside=len(fields["query"]))
        most = fields.get("top_n", len(documents))
        if most < 1:
            refuse_field("top_n", f"'top_n' must be at least 1, not {most}")
        await self._check_uncut(documents, fields.get("max_tokens_per_doc", 0))
        texts = [fields["query"], *documents]
        found = await self._encoder.embed(texts, exchange.known)
        scores = _likeness(found.rows[:1], found.rows[1:])
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[:most]
        results = [_result(index, scores[index], documents, fields) for index in order]
        answer = {
            "id": f"rerank-{exchange.request_id}",
            "model": fields.get("model", self._encoder.name),
            "results": results,
        }
        return _answer(answer, found.tokens, exchange)

    async def _check_uncut(self, documents: Sequence[str], most: int) -> None:
        """Refuse to cut documents to tokens that are fewer than the model reads; 0 cuts none."""
        if most < 0:
            refuse_field(
                "max_tokens_per_doc", f"'max_tokens_per_doc' must be 0 or more, not {most}"
            )
        for place, document in enumerate(documents):
            if most and len(document) > most:
                await asyncio.sleep(0)  # counting one may take a millisecond
                tokens = await self._encoder.count_tokens([document])
                if not 0 < tokens <= most:
                    field = "max_tokens_per_doc"
                    refuse_field(field, f"documents[{place}] would be cut by '{field}' of {most}")

    async def score(self, exchange: Exchange) -> Answer:
        """The likeness of pairs: one text to each of several, or text to text."""
        fields = self.scores.check(read_object(exchange.body), exchange.parameters)
        first, second = _listed(fields["text_1"]), _listed(fields["text_2"])
        if len(first) not in (1, len(second)):
            refuse_field("text_1", f"'text_1' must hold one text, or {len(second)} as 'text_2'")
        texts = [*first, *second]
        _check_texts("text_1", first)
        _check_texts("text_2", second, beside=sum(map(len, first)))
        found = await self._encoder.embed(texts, exchange.known)
        ones, others = np.split(found.rows, [len(first)])
        data = [
            {"object": "score", "index": index, "score": score}
            for index, score in enumerate(_likeness(ones, others))
        ]
        answer = {
            "id": f"score-{exchange.request_id}",
            "object": "list",
            "created": int(time.time()),
            "model": fields.get("model", self._encoder.name),
            "data": data,
        }
        return _answer(answer, found.tokens, exchange)


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
    return _answer(answer, found.tokens, exchange)


def _answer(answer: Mapping[str, Any], tokens: int, exchange: Exchange) -> bytes:
    """An answer with its usage, which the server is told of too."""
    origin = exchange.known.get("request")
    if origin is not None and origin.scope.report_usage is not None:
        origin.scope.report_usage(tokens, 0, 0)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return orjson.dumps({**answer, "usage": usage}, option=orjson.OPT_SERIALIZE_NUMPY)


def _check_texts(field: str, texts: Sequence[Any], *, beside: int = 0) -> None:
    """Refuse texts that are none, too many, or with the characters `beside` them too long."""
    if not texts:
        refuse_field(field, f"'{field}' must not be empty")
    if not all(isinstance(text, str) for text in texts):
        refuse_field(field, f"'{field}' must hold texts: this model takes no token ids")
    if len(texts) > _MOST_TEXTS:
        refuse_field(field, f"'{field}' holds {len(texts)} texts, more than {_MOST_TEXTS}")
    if sum(map(len, texts)) + beside > _MOST_CHARACTERS:
        refuse_field(field, f"'{field}' holds more than {_MOST_CHARACTERS} characters")


def _listed(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _shortened(rows: Array, size: int | None) -> Array:
    """The first numbers of each row, at length one again."""
    if size is None:
        return rows
    if not 1 <= size <= rows.shape[1]:
        refuse_field("dimensions", f"'dimensions' must be from 1 to {rows.shape[1]}, not {size}")
    return _normalized(rows[:, :size])


def _likeness(ones: Array, others: Array) -> list[float]:
    """The cosine of each pair."""
    cosines: list[float] = (_normalized(ones) * _normalized(others)).sum(axis=1).tolist()
    return cosines


def _normalized(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    normalized: Array = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return normalized


def _base64(row: Array) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


def _result(
    index: int, score: float, documents: Sequence[str], fields: Mapping[str, Any]
) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "relevance_score": score}
    if fields.get("return_documents", True):
        result["document"] = {"text": documents[index]}
    return result

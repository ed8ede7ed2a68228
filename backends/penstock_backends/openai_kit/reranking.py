"""POST /v1/rerank and /v1/score: how well texts go together, by any model that can say so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NotRequired, Protocol

import orjson
from typing_extensions import TypedDict

from penstock_backends.openai_kit.asgi import Answer, Exchange, OpenAiApplication, Route
from penstock_backends.openai_kit.embeddings import Scores
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.json_body import BodyReader, read_object

LONGEST_BODY: Final = 8 << 20
_MOST_TEXTS: Final = 2048
"""OpenAI's own limit."""
_MOST_CHARACTERS: Final = 1 << 20


class Scorer(Protocol):
    """A model that says how well texts go together, by reading both or by the cosine of vectors."""

    @property
    def name(self) -> str:
        """The model's name."""

    async def score(
        self, ones: Sequence[str], others: Sequence[str], known: Mapping[str, Any]
    ) -> Scores:
        """How well each text goes with the one beside it; a single one goes with each of `others`.

        `known` is `Exchange.known`; raises `InferenceError`.
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


def reranker_app(scorer: Scorer) -> OpenAiApplication:
    """The application of a model that scores pairs and has no vectors."""
    return OpenAiApplication("Reranker", rerank_routes(scorer), LONGEST_BODY)


def rerank_routes(scorer: Scorer) -> dict[str, Route]:
    """The routes that rank and score, under all of their names."""
    endpoints = _Endpoints(scorer)
    rerank = Route(endpoints.rerank, (endpoints.reranks,))
    score = Route(endpoints.score, (endpoints.scores,))
    return {
        "/v1/rerank": rerank,
        "/v1/score": score,
        "/rerank": rerank,
        "/v2/rerank": rerank,
        "/score": score,
    }


class _Endpoints:
    """The endpoints of one scorer."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.reranks = BodyReader(_Rerank, ignore_unknown=False)
        self.scores = BodyReader(_Score, ignore_unknown=False)

    async def rerank(self, exchange: Exchange) -> Answer:
        """Documents by how well they go with a query, the best first."""
        fields = self.reranks.check(read_object(exchange.body), exchange.parameters)
        documents = fields["documents"]
        check_texts("query", [fields["query"]])
        check_texts("documents", documents, beside=len(fields["query"]))
        most = fields.get("top_n", len(documents))
        if most < 1:
            refuse_field("top_n", f"'top_n' must be at least 1, not {most}")
        await self._check_uncut(documents, fields.get("max_tokens_per_doc", 0))
        scores, tokens = await self._scorer.score([fields["query"]], documents, exchange.known)
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[:most]
        results = [_result(index, scores[index], documents, fields) for index in order]
        answer = {
            "id": f"rerank-{exchange.request_id}",
            "model": fields.get("model", self._scorer.name),
            "results": results,
        }
        return usage_answer(answer, tokens, exchange)

    async def _check_uncut(self, documents: Sequence[str], most: int) -> None:
        """Refuse to cut documents to tokens that are fewer than the model reads; 0 cuts none."""
        if most < 0:
            refuse_field(
                "max_tokens_per_doc", f"'max_tokens_per_doc' must be 0 or more, not {most}"
            )
        for place, document in enumerate(documents):
            if most and len(document) > most:
                await asyncio.sleep(0)  # counting one may take a millisecond
                tokens = await self._scorer.count_tokens([document])
                if not 0 < tokens <= most:
                    field = "max_tokens_per_doc"
                    refuse_field(field, f"documents[{place}] would be cut by '{field}' of {most}")

    async def score(self, exchange: Exchange) -> Answer:
        """How well pairs go together: one text with each of several, or text with text."""
        fields = self.scores.check(read_object(exchange.body), exchange.parameters)
        first, second = _listed(fields["text_1"]), _listed(fields["text_2"])
        if len(first) not in (1, len(second)):
            refuse_field("text_1", f"'text_1' must hold one text, or {len(second)} as 'text_2'")
        check_texts("text_1", first)
        check_texts("text_2", second, beside=sum(map(len, first)))
        scores, tokens = await self._scorer.score(first, second, exchange.known)
        data = [
            {"object": "score", "index": index, "score": score}
            for index, score in enumerate(scores)
        ]
        answer = {
            "id": f"score-{exchange.request_id}",
            "object": "list",
            "created": int(time.time()),
            "model": fields.get("model", self._scorer.name),
            "data": data,
        }
        return usage_answer(answer, tokens, exchange)


def usage_answer(answer: Mapping[str, Any], tokens: int, exchange: Exchange) -> bytes:
    """An answer with its usage, which the server is told of too."""
    origin = exchange.known.get("request")
    if origin is not None and origin.scope.report_usage is not None:
        origin.scope.report_usage(tokens, 0, 0)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return orjson.dumps({**answer, "usage": usage}, option=orjson.OPT_SERIALIZE_NUMPY)


def check_texts(field: str, texts: Sequence[Any], *, beside: int = 0) -> None:
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


def _result(
    index: int, score: float, documents: Sequence[str], fields: Mapping[str, Any]
) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "relevance_score": score}
    if fields.get("return_documents", True):
        result["document"] = {"text": documents[index]}
    return result

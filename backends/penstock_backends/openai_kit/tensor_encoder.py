"""Text encoders and rerankers whose numbers come from a model's tensors, through its scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InferenceRequest,
    InvalidRequestError,
    ModelConfig,
    ResponseStream,
    Tensor,
)
from penstock_backends.language_model import MediaLimits
from penstock_backends.openai_kit.embeddings import Embeddings, Scores
from penstock_backends.openai_kit.packages import kit_imports
from penstock_backends.openai_kit.text_models.named_tokenizer import load_tokenizer

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication

MATRYOSHKA: Final = "penstock.matryoshka"
"""Parameter of a model: `true` where the beginning of its vectors may be asked for alone."""

TEXT: Final = "TEXT"
EMBEDDING: Final = "EMBEDDING"
"""The tensors by which a text encoder of any backend is known."""

_FLOATS: Final = (DataType.FP16, DataType.FP32, DataType.FP64)
_SHORT: Final = 1 << 12
"""Characters that are made tokens of at once; more would keep the event loop waiting."""

_MOST_REPEATED: Final = 1 << 22
"""Characters of a query as often as it is read."""

CountTokens = Callable[[Sequence[str]], int]
_Infer = Callable[[InferenceRequest], ResponseStream]
_Texts = Sequence[Sequence[str]]
"""The texts of each input of a model."""


class _Rows:
    """A model that has a row of numbers for each text, or pair of texts, in its first output.

    `count` counts tokens, where the model has a tokenizer.
    """

    def __init__(self, config: ModelConfig, count: CountTokens | None) -> None:
        self.name = config.name
        self._count = count
        self._inputs = [tensor.name for tensor in config.input]
        self._output = config.output[0].name
        self._has_columns = config.max_batch_size > 0 or len(config.input[0].dims) > 1
        self._most = max(config.max_batch_size, 1)

    async def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of all texts together, as far as the model reads them; 0 without a tokenizer."""
        if self._count is None:
            return 0
        if sum(map(len, texts)) <= _SHORT:
            return self._count(texts)
        return await asyncio.to_thread(self._count, texts)

    async def of(self, texts: _Texts, known: Mapping[str, Any]) -> Embeddings:
        """The rows of texts, those of each input in a sequence: as many requests as batches.

        Their tokens are as many as the model reports, or as a tokenizer counts, else 0.
        """
        infer, origin = known["infer"], known["request"]
        starts = range(0, len(texts[0]), self._most)
        parts = [[column[at : at + self._most] for column in texts] for at in starts]
        if len(parts) == 1:
            return await self._counted(parts[0], infer, origin)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._counted(one, infer, origin)) for one in parts]
        except ExceptionGroup as failed:  # one of them is what the client is told
            raise failed.exceptions[0] from failed
        rows, tokens = zip(*(one.result() for one in running), strict=True)
        return Embeddings(np.concatenate(rows), sum(tokens))

    async def _counted(self, texts: _Texts, infer: _Infer, origin: InferenceRequest) -> Embeddings:
        usage = _ReportedUsage()
        rows = await self.asked(texts, infer, origin, usage)
        tokens = usage.prompt
        if tokens is None:  # the model has not told: its answer was cached
            tokens = await self.count_tokens([*chain.from_iterable(texts)])
        return Embeddings(rows, tokens)

    async def asked(
        self,
        texts: Sequence[Sequence[str | bytes]],
        infer: _Infer,
        origin: InferenceRequest,
        usage: _ReportedUsage,
    ) -> Array:
        """The rows of one request."""
        rows = len(texts[0])
        shape = (rows, 1) if self._has_columns else (rows,)
        scope = origin.scope.part()
        scope.report_usage = usage
        columns = zip(self._inputs, texts, strict=True)
        request = InferenceRequest(
            self.name,
            id=origin.id,
            inputs={name: Tensor.from_strings(column, shape) for name, column in columns},
            priority=origin.priority,
            scope=scope,
        )
        stream = infer(request)
        try:
            async for response in stream:
                if response.error is not None:
                    raise response.error
                found: Array = response.outputs[self._output].numpy().reshape(rows, -1)
                return found
        finally:
            stream.close()
        raise AssertionError("a model that embeds has answered nothing")


class TensorEncoder:
    """A text encoder as the application sees it: its only input takes texts, its first output is
    a vector for each. `count` counts tokens, where the model has a tokenizer.
    """

    def __init__(self, config: ModelConfig, count: CountTokens | None = None) -> None:
        self.name = config.name
        self.matryoshka = config.parameter(MATRYOSHKA) == "true"
        self._rows = _Rows(config, count)
        self.count_tokens = self._rows.count_tokens

    async def embed(self, texts: Sequence[str], known: Mapping[str, Any]) -> Embeddings:
        """The vectors of texts, and their tokens, as `_Rows.of` has them."""
        return await self._rows.of([texts], known)

    async def embed_file(self, content: bytes, known: Mapping[str, Any]) -> Embeddings:
        """The vector of what is in a file, for a model that takes files instead of texts."""
        usage = _ReportedUsage()
        rows = await self._rows.asked([[content]], known["infer"], known["request"], usage)
        return Embeddings(rows, 0)


class TensorReranker:
    """A cross-encoder as the application sees it: two inputs of texts, its first output is how well
    they go together.
    """

    def __init__(self, config: ModelConfig, count: CountTokens) -> None:
        self.name = config.name
        self._rows = _Rows(config, count)
        self.count_tokens = self._rows.count_tokens

    async def score(
        self, ones: Sequence[str], others: Sequence[str], known: Mapping[str, Any]
    ) -> Scores:
        """How well each text goes with the one beside it, a single one with each of `others`."""
        if len(ones) == 1:
            ones = [*ones] * len(others)
        if sum(map(len, ones)) > _MOST_REPEATED:
            raise InvalidRequestError(
                f"the query, read with each of {len(others)} documents, is longer than"
                f" {_MOST_REPEATED} characters: send fewer documents at a time"
            )
        found = await self._rows.of([ones, others], known)
        return Scores(found.rows[:, 0].tolist(), found.tokens)


class _ReportedUsage:
    """The tokens that a model has reported of a request; `None` until it has."""

    def __init__(self) -> None:
        self.prompt: int | None = None

    def __call__(self, prompt: int, cached: int, generated: int) -> None:
        self.prompt = prompt


def has_vectors(config: ModelConfig) -> bool:
    """Whether the first output of a model is one vector for each row."""
    output = config.output[0]
    return output.data_type in _FLOATS and len(output.dims) - (not config.max_batch_size) == 1


def has_scores(config: ModelConfig) -> bool:
    """Whether a model has two inputs, and its first output is one number for each of their rows."""
    return len(config.input) == 2 and has_vectors(config) and config.output[0].dims[-1] == 1


def application_over(encoder: TensorEncoder) -> OpenAiApplication:
    """The application of an encoder; raises `BackendNotInstalledError` without its packages."""
    with kit_imports():
        from penstock_backends.openai_kit.encoders import encoder_app
    return encoder_app(encoder)


def application_of_pairs(reranker: TensorReranker) -> OpenAiApplication:
    """The application of a reranker; raises `BackendNotInstalledError` as above."""
    with kit_imports():
        from penstock_backends.openai_kit.reranking import reranker_app
    return reranker_app(reranker)


def application_of_images(encoder: TensorEncoder, limits: MediaLimits) -> OpenAiApplication:
    """The application of an encoder of images; raises `BackendNotInstalledError` as above."""
    with kit_imports():
        from penstock_backends.openai_kit.image_encoders import image_encoder_app
    return image_encoder_app(encoder, limits)


def open_application(config: ModelConfig, tokenizer: Path | None) -> OpenAiApplication | None:
    """The application of a model of any backend, or an ensemble, from `TEXT` to `EMBEDDING`.

    `tokenizer`, a file or a folder, counts tokens. Raises `ModelLoadError`.
    """
    if [one.name for one in config.input] != [TEXT] or not config.output or config.decoupled:
        return None
    if config.input[0].data_type is not DataType.BYTES or config.output[0].name != EMBEDDING:
        return None
    if not has_vectors(config):
        return None
    count = None if tokenizer is None else partial(_count, load_tokenizer(tokenizer))
    return application_over(TensorEncoder(config, count))


def _count(tokenizer: Any, texts: Sequence[str]) -> int:
    return sum(len(one.ids) for one in tokenizer.encode_batch(list(texts)))

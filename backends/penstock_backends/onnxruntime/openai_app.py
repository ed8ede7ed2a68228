"""OpenAI's API of a text encoder: its vectors come from the model, through its scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.backend import (
    Array,
    BackendNotInstalledError,
    DataType,
    InferenceRequest,
    ModelConfig,
    ResponseStream,
    Tensor,
)
from penstock_backends.onnxruntime.text_model import TextModel
from penstock_backends.onnxruntime.tokenizer import TOKENIZER

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication

MATRYOSHKA: Final = "penstock.matryoshka"
"""Parameter of a model: `true` where the beginning of its vectors may be asked for alone."""

_FLOATS: Final = (DataType.FP16, DataType.FP32, DataType.FP64)
_SHORT: Final = 1 << 12
"""Characters that are made tokens of at once; more would keep the event loop waiting."""


class TextEncoder:
    """A text encoder as the application sees it."""

    def __init__(self, config: ModelConfig, model: TextModel) -> None:
        self.name = config.name
        self.matryoshka = config.parameter(MATRYOSHKA) == "true"
        self._count = model.count_tokens
        self._input = config.input[0].name
        self._output = config.output[0].name
        self._has_columns = config.max_batch_size > 0 or len(config.input[0].dims) > 1
        self._most = max(config.max_batch_size, 1)

    async def count_tokens(self, texts: Sequence[str]) -> int:
        """Tokens of all texts together, as the model reads them."""
        if sum(map(len, texts)) <= _SHORT:
            return self._count(texts)
        return await asyncio.to_thread(self._count, texts)

    async def embed(self, texts: Sequence[str], known: Mapping[str, Any]) -> Array:
        """One row for each text: as many requests as the batches of the model need."""
        infer, origin = known["infer"], known["request"]
        parts = [texts[at : at + self._most] for at in range(0, len(texts), self._most)]
        if len(parts) == 1:
            return await self._rows(parts[0], infer, origin)
        try:
            async with asyncio.TaskGroup() as tasks:
                rows = [tasks.create_task(self._rows(part, infer, origin)) for part in parts]
        except ExceptionGroup as failed:  # one of them is what the client is told
            raise failed.exceptions[0] from failed
        return np.concatenate([row.result() for row in rows])

    async def _rows(
        self,
        texts: Sequence[str],
        infer: Callable[[InferenceRequest], ResponseStream],
        origin: InferenceRequest,
    ) -> Array:
        shape = (len(texts), 1) if self._has_columns else (len(texts),)
        request = InferenceRequest(
            self.name,
            id=origin.id,
            inputs={self._input: Tensor.from_strings(texts, shape)},
            priority=origin.priority,
            deadline=origin.deadline,
            timeline=origin.timeline,
        )
        stream = infer(request)
        try:
            async for response in stream:
                if response.error is not None:
                    raise response.error
                rows: Array = response.outputs[self._output].numpy().reshape(len(texts), -1)
                return rows
        finally:
            stream.close()
        raise AssertionError("a model that embeds has answered nothing")


def open_openai_app(config: ModelConfig, model: object) -> OpenAiApplication | None:
    """The application of a text encoder whose first output is a vector for each text."""
    if config.parameter(TOKENIZER) is None or not isinstance(model, TextModel):
        return None
    output = config.output[0]
    if output.data_type not in _FLOATS or len(output.dims) - (not config.max_batch_size) != 1:
        return None
    try:
        from penstock_backends.openai_kit.encoders import encoder_app
    except ImportError as error:
        raise BackendNotInstalledError(
            f"they need packages that are not installed: pip install 'penstock[openai]' ({error})"
        ) from error
    return encoder_app(TextEncoder(config, model))

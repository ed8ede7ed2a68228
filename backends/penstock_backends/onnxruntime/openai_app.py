"""OpenAI's API of a text encoder: its vectors come from the model, through its scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.backend import ModelConfig
from penstock_backends.onnxruntime.text_model import TextModel
from penstock_backends.onnxruntime.tokenizer import TOKENIZER
from penstock_backends.openai_kit.tensor_encoder import (
    TensorEncoder,
    application_over,
    has_vectors,
    open_application,
)

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication


def open_openai_app(config: ModelConfig, model: object) -> OpenAiApplication | None:
    """The application of a text encoder whose first output is a vector for each text."""
    if config.parameter(TOKENIZER) is None or not isinstance(model, TextModel):
        return open_application(config, None)  # its graph may read texts itself
    return (
        application_over(TensorEncoder(config, model.count_tokens)) if has_vectors(config) else None
    )

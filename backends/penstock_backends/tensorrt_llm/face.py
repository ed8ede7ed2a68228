"""Faces of a model: which tensors it has, how requests are read, and how answers are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.backend import InferenceRequest, InferenceResponse, Input, ModelConfig, Output
from penstock_backends.tensorrt_llm.answer import OutputEncoder
from penstock_backends.tensorrt_llm.request import Prompt
from penstock_backends.tensorrt_llm.settings import EngineSettings

Respond = Callable[[Any], InferenceResponse]
"""Encodes an engine's output as it is, for one response of one request."""


class Face(Protocol):
    """The tensors of one kind of model over the same engine."""

    inputs: Sequence[Input]
    outputs: Sequence[Output]

    def read(self, request: InferenceRequest, settings: EngineSettings) -> Prompt:
        """Decode a request; raises `InvalidRequestError`."""

    def answer(self, encoder: OutputEncoder, prompt: Prompt, config: ModelConfig) -> Respond:
        """The encoder of the responses to one request."""

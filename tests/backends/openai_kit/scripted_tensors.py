"""A model from text to text behind its tensors, and its application as the server makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from backends.openai_kit.scripted import client_of
from penstock.backend import (
    DataType,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    Input,
    ModelConfig,
    Output,
    Parameter,
    ResponseStream,
    Tensor,
    TransactionPolicy,
)
from penstock.core.http_exchange import ASGI_EXTENSION, AsgiApp, Message
from penstock.core.request import RequestScope
from penstock_backends.openai_kit.text_models.text_generator import open_application

TEXT = Input(name="text_input", data_type=DataType.BYTES, dims=(1,))
OUTPUT = Output(name="text_output", data_type=DataType.BYTES, dims=(-1,))


def taking(name: str, kind: DataType = DataType.BYTES, *dims: int, needed: bool = False) -> Input:
    """The declaration of an input."""
    return Input(name=name, data_type=kind, dims=dims or (1,), optional=not needed)


def text_config(
    *inputs: Input,
    outputs: Sequence[Output] = (),
    decoupled: bool = True,
    batch: int = 0,
    parameters: Mapping[str, str] | None = None,
) -> ModelConfig:
    """The configuration of a model with these tensors besides its texts."""
    return ModelConfig(
        name="m",
        input=(TEXT, *inputs),
        output=(OUTPUT, *outputs),
        max_batch_size=batch,
        model_transaction_policy=TransactionPolicy(decoupled),
        parameters={name: Parameter(value) for name, value in (parameters or {}).items()},
    )


def knowing(app: AsgiApp, known: Mapping[str, Any]) -> AsgiApp:
    """The application, with what a server tells it."""

    async def called(scope: Message, receive: Any, send: Any) -> None:
        await app({**scope, "extensions": {ASGI_EXTENSION: known}}, receive, send)

    return called


@dataclass
class TextModel:
    """A model that answers each request with these texts, or outputs, one response each.

    It fails with an error that stands among them.
    """

    config: ModelConfig
    texts: Sequence[str | bytes | Mapping[str, Tensor] | InferenceError] = ("Hello", " you")
    endless: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Path | None = None
    asked: list[InferenceRequest] = field(default_factory=list)
    streams: list[ResponseStream] = field(default_factory=list)
    reported: list[tuple[int, int, int]] = field(default_factory=list)

    def client(self) -> openai.AsyncOpenAI:
        """The official client of its application."""
        return client_of(self.app())

    def app(self) -> AsgiApp:
        """Its application, as a server calls it."""
        app = open_application(self.config, self.tokenizer)
        assert app is not None
        origin = InferenceRequest(
            "m",
            parameters=self.parameters,
            scope=RequestScope(report_usage=lambda *t: self.reported.append(t)),
        )
        return knowing(app, {"infer": self._infer, "request": origin})

    def inputs(self) -> dict[str, list[Any]]:
        """The values of the last request, by input."""
        return {
            name: [one.decode() for one in tensor.elements()]
            if tensor.datatype is DataType.BYTES
            else tensor.numpy().ravel().tolist()
            for name, tensor in self.asked[-1].inputs.items()
        }

    def _infer(self, request: InferenceRequest) -> ResponseStream:
        self.asked.append(request)
        stream = ResponseStream()
        self.streams.append(stream)
        for one in self.texts:
            stream.send(_response(one))
        if not self.endless:
            stream.send(InferenceResponse(final=True))
        return stream


def _response(told: str | bytes | Mapping[str, Tensor] | InferenceError) -> InferenceResponse:
    if isinstance(told, InferenceError):
        return InferenceResponse(error=told)
    outputs = told if isinstance(told, Mapping) else {"text_output": Tensor.from_strings([told])}
    return InferenceResponse(outputs)

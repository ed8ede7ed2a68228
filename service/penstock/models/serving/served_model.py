"""`ServedModel`: the interface of a model for frontends, also while the server exits (S-22)."""

from __future__ import annotations

from typing import Protocol

from penstock.core.config import ModelConfig
from penstock.core.errors import UnavailableError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.models.serving.loaded_model import NO_NEW_REQUESTS, LoadedModel


class ServedModel(Protocol):
    """A model version, as frontends use it."""

    @property
    def config(self) -> ModelConfig:
        """The configuration of the version."""

    @property
    def decoupled(self) -> bool:
        """Whether a request may have any number of responses."""

    def infer(self, request: InferenceRequest) -> ResponseStream:
        """Admit a request; returns the stream of its responses, which the caller closes."""

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        """Admit an exchange over HTTP; returns the `ExchangePart`s of the answer, to be closed."""


class FinishingModel:
    """A model of a server that exits: it admits only requests that continue a sequence."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self.config = model.config
        self.decoupled = model.decoupled

    def infer(self, request: InferenceRequest) -> ResponseStream:
        if request.sequence_start or not request.correlation_id:
            raise UnavailableError(NO_NEW_REQUESTS)
        return self._model.infer(request)

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        raise UnavailableError(NO_NEW_REQUESTS)

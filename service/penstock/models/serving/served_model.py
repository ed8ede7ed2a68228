"""Models as those see them who only send requests, also while the server exits (contract S-22)."""

from __future__ import annotations

from typing import Protocol

from penstock.core.config import ModelConfig
from penstock.core.errors import UnavailableError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.models.serving.loaded_model import NO_NEW_REQUESTS, LoadedModel


class ServedModel(Protocol):
    """A model version, as far as those see it who only send requests."""

    @property
    def config(self) -> ModelConfig:
        """What its requests have to be like."""

    @property
    def decoupled(self) -> bool:
        """Whether requests may get any number of responses."""

    def infer(self, request: InferenceRequest) -> ResponseStream:
        """Admit a request; its responses come on the stream, which the caller closes."""


class FinishingModel:
    """A model of a server that exits: requests may continue sequences only."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self.config = model.config
        self.decoupled = model.decoupled

    def infer(self, request: InferenceRequest) -> ResponseStream:
        if request.sequence_start or not request.correlation_id:
            raise UnavailableError(NO_NEW_REQUESTS)
        return self._model.infer(request)

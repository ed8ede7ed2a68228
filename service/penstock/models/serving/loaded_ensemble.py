"""`LoadedEnsemble`: a loaded version of an ensemble, which has models of steps but no instances."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.core.errors import UnavailableError, UnsupportedError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.models.serving.loaded_model import NO_NEW_REQUESTS, LoadedModel, ModelParts


class LoadedEnsemble(LoadedModel):
    """One version of an ensemble. It retains the models of its steps until it has stopped.

    It admits requests whatever the state of these models: a call to one that is down fails.
    """

    def __init__(self, parts: ModelParts, models: Sequence[LoadedModel]) -> None:
        super().__init__(parts)
        self._models = list(dict.fromkeys(models))
        for model in self._models:
            model.retain()

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        if self._application is not None:
            return super().exchange(request)
        raise UnsupportedError(f"model '{self.config.name}' is an ensemble, without OpenAI routes")

    async def ready(self) -> bool:
        """Whether every model of a step is ready."""
        if self._stopping:
            return False
        return all(await asyncio.gather(*(model.ready() for model in self._models)))

    @property
    def loss(self) -> str:
        """Why the models of some steps will never work again; empty while all may."""
        return "; ".join(model.loss for model in self._models if model.loss)

    def _check_serving(self) -> None:
        if self._stopping:
            raise UnavailableError(NO_NEW_REQUESTS)

    async def _release(self) -> None:
        if self._application is not None:
            await self._application.close()
        models, self._models = self._models, []
        for model in models:
            model.release()
        await LoadedModel._release(self)

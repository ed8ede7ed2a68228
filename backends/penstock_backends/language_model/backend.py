"""`LanguageModelBackend`: base class of backends whose engines batch in flight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from penstock.backend import Backend, Host, InferenceError, InferenceRequest, Outcome, Window
from penstock_backends.language_model.delivery import WINDOW


class LanguageModelBackend(Backend):
    """Passes every request to the engine at once; the engine runs in a process of its own."""

    host: ClassVar[Host] = "process"
    serial: ClassVar[bool] = False
    window: ClassVar[Window] = WINDOW
    reports_usage: ClassVar[bool] = True

    @abstractmethod
    def generate(self, request: InferenceRequest) -> Outcome:
        """Start one request; raises `InferenceError` to reject it."""

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: InferenceRequest) -> Outcome:
        try:
            return self.generate(request)
        except InferenceError as error:
            return error

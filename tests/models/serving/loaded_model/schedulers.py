"""Schedulers that take no request."""

from __future__ import annotations

from penstock.core.errors import InferenceError, InvalidRequestError, RejectedError
from penstock.inflight.inference import Inference


class Full:
    """A scheduler that has no room."""

    def schedule(self, inference: Inference) -> None:
        raise RejectedError("Exceeds maximum queue size")

    def abandon(self, error: InferenceError) -> None: ...

    async def drain(self) -> None: ...


class Refusing(Full):
    """A scheduler to which no request is fit."""

    def schedule(self, inference: Inference) -> None:
        raise InvalidRequestError("must specify the START flag")

"""`BodyParts`: statistics and traces of an answer over HTTP begin with its body, not its head."""

from __future__ import annotations

from penstock.core.request import ExchangePart, InferenceResponse
from penstock.inflight.latencies import Transform


class BodyParts:
    """A transform that applies another one to parts of a body only."""

    __slots__ = ("_transform",)

    def __init__(self, transform: Transform) -> None:
        self._transform = transform

    def __call__(self, response: InferenceResponse) -> InferenceResponse:
        bodiless = isinstance(response, ExchangePart) and not response.body
        return response if bodiless else self._transform(response)

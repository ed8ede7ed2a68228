"""Headers that are passed on to the model as request parameters (contract H-30)."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from penstock.core.request import InferenceRequest
from penstock.header_forward import header_forward

HEADER_NAMES = "penstock.header_names"
"""Where the scope holds the names of headers as they were sent; in its `headers` they are lower."""


class RequestHeaders:
    """Passes on the headers whose names a pattern matches; none if it is empty."""

    def __init__(self, pattern: str) -> None:
        self._forward = header_forward(pattern)

    def applied(self, inference: InferenceRequest, request: Request) -> InferenceRequest:
        """`inference` with headers of `request` among its parameters; refuses reserved ones."""
        if self._forward is None:
            return inference
        headers = request.scope["headers"]
        names = request.scope.get(HEADER_NAMES) or [name for name, _ in headers]
        pairs = zip(names, (value for _, value in headers), strict=True)
        chosen = self._forward.chosen((n.decode("latin-1"), v.decode("latin-1")) for n, v in pairs)
        return replace(inference, parameters={**inference.parameters, **chosen})

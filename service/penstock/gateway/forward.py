"""Headers that are passed on to the model as request parameters (contract H-30)."""

from __future__ import annotations

import re
from dataclasses import replace

from starlette.requests import Request

from penstock.core.request import InferenceRequest

HEADER_NAMES = "penstock.header_names"
"""Where the scope holds the names of headers as they were sent; in its `headers` they are lower."""


class HeaderForward:
    """Passes on the headers whose names a pattern matches, anywhere; none if it is empty."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern) if pattern else None

    def applied(self, inference: InferenceRequest, request: Request) -> InferenceRequest:
        """`inference` with the headers of `request` among its parameters."""
        if self._pattern is None:
            return inference
        headers = request.scope["headers"]
        names = request.scope.get(HEADER_NAMES) or [name for name, _ in headers]
        forwarded = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, (_, value) in zip(names, headers, strict=True)
            if self._pattern.search(name.decode("latin-1"))
        }
        return replace(inference, parameters={**inference.parameters, **forwarded})

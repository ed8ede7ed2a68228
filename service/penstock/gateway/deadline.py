"""How long an HTTP client waits for its answer, which the protocol itself does not say."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from starlette.requests import Request

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest

HEADER = "request-timeout"
"""Seconds, with a fraction if need be. After them the request is cancelled, and answered 504."""


def timed(inference: InferenceRequest, request: Request) -> InferenceRequest:
    """`inference` with the deadline that the header of `request` sets; without one as it is."""
    text = request.headers.get(HEADER)
    if text is None:
        return inference
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise InvalidRequestError(
            f"header '{HEADER}' must be a number of seconds above 0, got '{text}'"
        )
    return replace(inference, deadline=asyncio.get_running_loop().time() + seconds)

"""The scope of an HTTP request: deadline, forwarded headers, cancellation on disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from penstock.core.errors import InvalidRequestError
from penstock.core.request import CALL_ID, InferenceRequest, ParameterValue, called, sent_by
from penstock.core.stream import ResponseStream
from penstock.gateway.connections.http_call import HttpCall
from penstock.header_forward import header_forward
from penstock.scheduling.tokens.tenants import Tenants
from penstock.settings import Restriction

HEADER = "request-timeout"
"""Header with a deadline in seconds, fractions allowed; then the request is cancelled with 504."""


def with_deadline(inference: InferenceRequest, call: HttpCall) -> InferenceRequest:
    """`inference` with the deadline in the header of `call`; unchanged without one."""
    text = call.headers.get(HEADER)
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


def with_sender(
    inference: InferenceRequest, call: HttpCall, tenants: Tenants | None
) -> InferenceRequest:
    """`inference` with its sender by the headers of `call`, where the server has tenants."""
    return inference if tenants is None else sent_by(inference, tenants.sender(call.headers))


def with_call_id(inference: InferenceRequest, call: HttpCall) -> InferenceRequest:
    """`inference`, just made, with the `x-request-id` of `call`, if it has one."""
    call_id = call.headers.get(CALL_ID)
    return called(inference, call_id) if call_id else inference


class ForwardedHeaders:
    """Forwards headers whose names match a pattern; none if it is empty, and no secrets."""

    def __init__(self, pattern: str, restrictions: Iterable[Restriction]) -> None:
        self._forward = header_forward(pattern, [one.key for one in restrictions])

    def added_to(self, inference: InferenceRequest, call: HttpCall) -> InferenceRequest:
        """`inference` with headers of `call` among its parameters; refuses reserved ones."""
        chosen = self.of(call)
        if not chosen:
            return inference
        parameters = {**inference.parameters, **chosen}
        return replace(inference, parameters=parameters, template=None)

    def of(self, call: HttpCall) -> Mapping[str, ParameterValue]:
        """The headers of `call` that become parameters; refuses reserved ones."""
        if self._forward is None:
            return {}
        pairs = ((name.decode("latin-1"), _text(value)) for name, value in call.fields)
        return self._forward.select(pairs)


def _text(value: bytes) -> str:
    """The value of a field: UTF-8, as models get it from Triton, and Latin-1 where it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@contextmanager
def closed_on_disconnect(stream: ResponseStream, call: HttpCall) -> Iterator[ResponseStream]:
    """Cancellation on disconnect: closes `stream` when the client leaves, and on exit."""
    call.on_disconnect(stream.close)
    try:
        yield stream
    finally:
        call.on_disconnect(None)
        stream.close()

"""The answer to a request of which one response is expected; no task waits for it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream, require_single
from penstock.rpc.context import CompletionCallbacks
from penstock.rpc.response_encoder import ResponseEncoder
from penstock.shared_memory.registry import Regions


class UnaryAnswer:
    """Sends what comes on a stream to whoever asked: unary is a stream of one (G-34)."""

    __slots__ = ("_callbacks", "_encoder", "_regions", "_request", "_responses", "_stream")

    def __init__(
        self,
        request: InferenceRequest,
        callbacks: CompletionCallbacks,
        encoder: ResponseEncoder,
        regions: Regions,
    ) -> None:
        self._request = request
        self._callbacks = callbacks
        self._encoder = encoder
        self._regions = regions
        self._responses: list[InferenceResponse] = []
        self._stream: ResponseStream | None = None

    def follow(self, stream: ResponseStream) -> Callable[[], None] | None:
        """Answer with what comes on `stream`; what to call when nobody wants it any more.

        `None` when all has been said already.
        """
        self._stream = stream
        stream.watch(self._on_response)
        return self._cancel if self._pending() else None

    def _pending(self) -> bool:
        return self._stream is not None

    def _cancel(self) -> None:
        stream = self._stream
        if stream is not None:
            self._release()
            stream.close()

    def _on_response(self) -> None:
        stream = self._stream
        if stream is None:
            return
        self._responses += stream.take_ready()
        if not stream.exhausted:
            return
        try:
            response = require_single(self._responses, stream.error)
            # Which writes what the client wants in its own memory, and so is before the end.
            reply = self._encoder.encode(self._request, stream.model_version, response)
        except Exception as error:  # the response may be unfit to be encoded
            self._release()
            self._callbacks.raised(error)
        else:
            self._release()
            self._callbacks.returned(reply)

    def _release(self) -> None:
        self._stream = None  # which refers to this in turn
        self._regions.release(self._request)

"""The answer to a `ModelInfer` request, sent by callbacks without a task."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream, require_single
from penstock.rpc.context import CompletionCallbacks
from penstock.rpc.response_encoder import ResponseEncoder
from penstock.shared_memory.registry import Regions


class UnaryAnswer:
    """Sends the only response of a stream to the caller: unary is a stream of one (G-34)."""

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
        """Answer with the response of `stream`.

        Returns a callback to cancel the request, or `None` if it is already answered.
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
            # Writes outputs into the client's shared memory, and so comes before its release.
            reply = self._encoder.encode(self._request, stream.model_version, response)
        except Exception as error:  # the response cannot be encoded
            self._release()
            self._callbacks.raised(error)
        else:
            self._release()
            self._callbacks.returned(reply)

    def _release(self) -> None:
        self._stream = None  # breaks the reference cycle
        self._regions.release(self._request)

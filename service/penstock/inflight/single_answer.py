"""`SingleAnswer`: the answer to a unary request, which is the only response of a stream."""

from __future__ import annotations

from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.shared_memory.registry import Regions


class SingleAnswer:
    """Collects the responses of a stream by callbacks, without a task, until it has ended (G-34).

    Derived classes set `_stream`, have `_on_response` called by it, and send the answer; they
    release the request before they do.
    """

    __slots__ = ("_regions", "_request", "_responses", "_stream")

    def __init__(self, request: InferenceRequest, regions: Regions) -> None:
        self._request = request
        self._regions = regions
        self._responses: list[InferenceResponse] = []
        self._stream: ResponseStream | None = None

    def _on_response(self) -> None:
        stream = self._stream
        if stream is None:
            return
        self._responses += stream.take_ready()
        if stream.exhausted:
            self._answer(stream)

    def _answer(self, stream: ResponseStream) -> None:
        """Send the answer: `stream` has ended, with `_responses` or an error."""
        raise NotImplementedError

    def _cancel(self) -> None:
        """Cancel the request: its client has left."""
        stream = self._stream
        if stream is not None:
            self._release()
            stream.close()
            self._on_cancelled()

    def _on_cancelled(self) -> None:
        """Note in the request's timeline, if it has one, that it was cancelled."""
        raise NotImplementedError

    def _release(self) -> None:
        """Release the request's shared memory; nothing of the stream is looked at any more."""
        self._stream = None  # breaks the reference cycle
        self._regions.release(self._request)

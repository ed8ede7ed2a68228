"""The answer to a `ModelInfer` request, sent by callbacks without a task."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.errors import RequestCancelledError
from penstock.core.log.log_fields import name_request
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream, require_single
from penstock.rpc.call_record import CallRecord
from penstock.rpc.context import CompletionCallbacks, Reply
from penstock.rpc.response_encoder import ResponseEncoder
from penstock.shared_memory.registry import Regions


class UnaryAnswer:
    """Sends the only response of a stream to the caller: unary is a stream of one (G-34)."""

    __slots__ = (
        "_callbacks",
        "_encoder",
        "_record",
        "_regions",
        "_request",
        "_responses",
        "_stream",
    )

    def __init__(
        self,
        request: InferenceRequest,
        callbacks: CompletionCallbacks,
        encoder: ResponseEncoder,
        regions: Regions,
        record: CallRecord | None = None,
    ) -> None:
        self._request = request
        self._callbacks = callbacks
        self._encoder = encoder
        self._regions = regions
        self._record = record
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
            if self._record is not None:
                self._record.finish(RequestCancelledError())

    def _on_response(self) -> None:
        stream = self._stream
        if stream is None:
            return
        self._responses += stream.take_ready()
        if not stream.exhausted:
            return
        record = self._record
        if record is not None:
            record.response_complete()
        try:
            response = require_single(self._responses, stream.error)
            # Writes outputs into the client's shared memory, and so comes before its release.
            reply = self._encoder.encode(self._request, stream.model_version, response)
        except Exception as error:  # the response cannot be encoded
            name_request(error, self._request)
            self._release()
            if record is None:
                self._callbacks.raised(error)
            else:
                self._raise_recorded(record, error)
        else:
            self._release()
            if record is None:
                self._callbacks.returned(reply)
            else:
                self._return_recorded(record, reply)

    def _raise_recorded(self, record: CallRecord, error: Exception) -> None:
        record.explain(error)
        self._callbacks.raised(error)
        record.finish(error)

    def _return_recorded(self, record: CallRecord, reply: Reply) -> None:
        record.explain()
        self._callbacks.returned(reply)
        record.response_sent()
        record.finish()

    def _release(self) -> None:
        self._stream = None  # breaks the reference cycle
        self._regions.release(self._request)

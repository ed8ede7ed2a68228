"""The answer to a `ModelInfer` request, sent by callbacks without a task."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.errors import RequestCancelledError
from penstock.core.log.log_fields import name_request
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream, require_single
from penstock.inflight.single_answer import SingleAnswer
from penstock.rpc.call_record import CallRecord
from penstock.rpc.context import CompletionCallbacks, Reply
from penstock.rpc.response_encoder import ResponseEncoder
from penstock.shared_memory.registry import Regions


class UnaryAnswer(SingleAnswer):
    """Sends the only response of a stream to the caller of `ModelInfer`."""

    __slots__ = ("_callbacks", "_encoder", "_record")

    def __init__(
        self,
        request: InferenceRequest,
        callbacks: CompletionCallbacks,
        encoder: ResponseEncoder,
        regions: Regions,
        record: CallRecord | None = None,
    ) -> None:
        SingleAnswer.__init__(self, request, regions)  # without `super()`, which takes longer
        self._callbacks = callbacks
        self._encoder = encoder
        self._record = record

    def follow(self, stream: ResponseStream) -> Callable[[], None] | None:
        """Answer with the response of `stream`.

        Returns a callback to cancel the request, or `None` if it is already answered.
        """
        self._stream = stream
        stream.watch(self._on_response)
        return self._cancel if self._pending() else None

    def _pending(self) -> bool:
        return self._stream is not None

    def _on_cancelled(self) -> None:
        if self._record is not None:
            self._record.finish(RequestCancelledError())

    def _answer(self, stream: ResponseStream) -> None:
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

"""`InferenceResponseSender`: responses of one request, from any thread, even after `execute`."""

from __future__ import annotations

from penstock_backends.python.pb_utils.arguments import UINT32, instance, integer
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
)
from penstock_backends.python.pb_utils.runtime import Reply


class InferenceResponseSender:
    """Sends responses until the final flag (contract PY-23 to PY-25)."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, the final flag, or both.

        Blocks while too many responses are in flight: flow control, so that a slow client slows
        the model down instead of filling memory.
        """
        flags = integer(flags, "flags", UINT32)
        self._check(response, flags)
        self._reply.send(response, final=flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled the request."""
        return self._reply.is_cancelled()

    def _check(self, response: InferenceResponse | None, flags: int) -> None:
        """Raises what Triton does, in its order: types, flags, how many responses, the end."""
        if response is not None:
            instance(response, "response", InferenceResponse)
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if not self._reply.decoupled:
            self._check_single(response)
        if self._reply.closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")

    def _check_single(self, response: InferenceResponse | None) -> None:
        """A model that is not decoupled sends one response."""
        if response is not None and self._reply.sent:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send more than one response."
            )
        if response is None and not self._reply.sent:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send complete final before"
                " sending a response."
            )

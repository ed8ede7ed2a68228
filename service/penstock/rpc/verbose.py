"""Verbose lines about calls, step by step and in Triton's words (contract L-08).

They are written while `--log-verbose` is 1 or more; a stream has them if it was so when it began.
They name tensors with their shapes, and never show their contents.
"""

from __future__ import annotations

import logging
from typing import Any

from penstock.core.errors import InferenceError, request_prefix, shortened
from penstock.core.log.verbosity import VERBOSITY
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, Reply, RpcContext
from penstock.rpc.infer_message import InferMessage

logger = logging.getLogger(__name__)

_MOST_TENSORS = 16
"""Tensors of a request that its line names."""


class VerboseCalls:
    """An observer of calls that logs their steps; it numbers the calls that it has seen."""

    switch = VERBOSITY

    def __init__(self) -> None:
        self._next = 0

    def parsed(self, size: int) -> None:
        """Not looked at."""

    def begin(self, method: Method, context: RpcContext) -> VerboseCall:
        number, self._next = self._next, self._next + 1
        return VerboseCall(method, number)


class VerboseCall:
    """Logs the steps of one call."""

    def __init__(self, method: Method, number: int) -> None:
        self._streams = method.client_streaming
        self._infers = method.request is pb.ModelInferRequest
        self._name = f"{method.name}Handler" if self._infers else method.name
        self._number = number
        self._request_id = ""
        self._step("START")
        if self._infers:
            logger.debug("New request handler for %s, %d", self._name, number)

    def received(self, message: Any) -> None:
        if self._streams:
            self._step("READ")
        if isinstance(message, InferMessage):
            self._request_id = message.head.id
            logger.debug("%sprepared: %s", request_prefix(message.head.id), _summary(message.head))

    def sent(self, reply: Reply) -> None:
        if self._streams:
            self._step("WRITTEN")
        elif self._infers:
            text = "ModelInferHandler::InferResponseComplete, %d step ISSUED"
            logger.debug(text, self._number)

    def ended(self, error: BaseException | None) -> None:
        if isinstance(error, InferenceError):
            if self._infers:
                text = "%sInfer failed: %s"
                logger.debug(text, request_prefix(self._request_id), error.message)
        elif error is not None:
            self._log_step("Cancellation notification received for", "CANCELLED")
        self._step("COMPLETE")
        logger.debug("Done for %s, %d", self._name, self._number)

    def _step(self, step: str) -> None:
        self._log_step("Process for", step)

    def _log_step(self, what: str, step: str) -> None:
        context = "context 0, " if self._streams else ""
        text = "%s %s, rpc_ok=1, %s%d step %s"
        logger.debug(text, what, self._name, context, self._number, step)


def _summary(head: pb.ModelInferRequest) -> str:
    """A request in the words of Triton's line, without addresses and contents."""
    inputs = [
        f"input: {shortened(one.name)}, type: {shortened(one.datatype)},"
        f" original shape: [{','.join(map(str, one.shape[:_MOST_TENSORS]))}]"
        for one in head.inputs[:_MOST_TENSORS]
    ]
    outputs = [shortened(one.name) for one in head.outputs[:_MOST_TENSORS]]
    return "\n".join(
        (
            f"request id: {shortened(head.id)}, model: {shortened(head.model_name)},"
            f" requested version: {shortened(head.model_version) or -1}",
            "original inputs:",
            *inputs,
            "original requested outputs:",
            *outputs,
        )
    )

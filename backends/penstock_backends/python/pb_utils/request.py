"""`InferenceRequest`: the input of `execute`, and the call of another model (BLS)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.request import RequestScope
from penstock.core.timeline import Timeline, Trace
from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.arguments import (
    INT64,
    REQUIRED,
    UINT32,
    UINT64,
    Text,
    instance,
    integer,
    sequence,
    text,
    texts,
    truth,
)
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.response_iterators import (
    ResponseIterator,
    iterator_future,
    response_future,
    wait_for_response,
)
from penstock_backends.python.pb_utils.responses import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceResponse,
    PreferredMemory,
    checked_parameters,
    parameters_json,
)
from penstock_backends.python.pb_utils.sender import InferenceResponseSender
from penstock_backends.python.pb_utils.tensor import Tensor


def _untraced() -> Timeline:
    """The timeline of requests that are not traced, which nobody reads."""
    timeline = Trace(0).root
    timeline.on_link = -1  # so that a call with this trace is nobody's, whatever executes
    return timeline


_UNTRACED = _untraced()


class InferenceTrace:
    """The trace that a request belongs to, for calls on its behalf (contract T-17)."""

    __slots__ = ("timeline",)

    def __init__(self, timeline: Timeline | None = None) -> None:
        self.timeline = timeline or _UNTRACED

    def get_context(self) -> str | None:
        """The request's span as W3C headers: JSON with `traceparent`, and `tracestate` if any.

        `None` where the request is not traced, or not in the mode `opentelemetry`.
        """
        if not self.timeline.trace.propagated:
            return None
        headers = self.timeline.context.headers
        headers.pop("baggage", None)  # as Triton's
        return json.dumps(headers, separators=(",", ":"))


class InferenceRequest:
    """One request (contract PY-11 and PY-12).

    A model creates one to call another model: `exec` and `async_exec` return the response, or
    with `decoupled=True` an iterator over responses.
    """

    __slots__ = (
        "_core",
        "_flags",
        "_preferred",
        "_reply",
        "_sender",
        "_tensors",
        "_trace",
        "rescheduled",
    )

    def __init__(
        self,
        request_id: Text = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = REQUIRED,
        requested_output_names: Sequence[Text] = REQUIRED,
        model_name: Text = REQUIRED,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises `TypeError` for arguments of wrong types, as for those that are missing."""
        name, identity = text(model_name, "model_name"), text(request_id, "request_id")
        for tensor in sequence(inputs, "inputs", "Tensor"):
            _check_input(tensor, identity, name)
        version = integer(model_version, "model_version", INT64)
        self._tensors: dict[str, Tensor] | None = {tensor.name(): tensor for tensor in inputs}
        self._core = CoreRequest(
            model_name=name,
            model_version="" if version < 0 else str(version),
            id=identity,
            inputs={tensor.name(): tensor.core for tensor in inputs},
            requested_outputs=texts(requested_output_names, "requested_output_names"),
            parameters=checked_parameters(parameters),
            timeout=integer(timeout, "timeout", UINT64),
            correlation_id=_checked_correlation(correlation_id),
        )
        self._flags = integer(flags, "flags", UINT32)
        self._preferred = preferred_memory and instance(
            preferred_memory, "preferred_memory", PreferredMemory
        )
        self._reply: runtime.Reply | None = None
        self._trace = trace and instance(trace, "trace", InferenceTrace)
        self.rescheduled = False
        self._sender: InferenceResponseSender | None = None

    @classmethod
    def received(cls, core: CoreRequest, reply: runtime.Reply) -> InferenceRequest:
        """A request that the server has sent to this model."""
        request = cls.__new__(cls)
        request._core = core
        request._tensors = None
        request._flags = (
            core.sequence_start * TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
            | core.sequence_end * TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
        )
        request._preferred = None
        request._reply = reply
        request._trace = None
        request.rescheduled = False
        request._sender = None
        return request

    @property
    def core(self) -> CoreRequest:
        """The request in the server's form."""
        return self._core

    # -- contents -----------------------------------------------------------------------------

    def inputs(self) -> list[Tensor]:
        return list(self.tensors.values())

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The inputs by name."""
        if self._tensors is None:
            self._tensors = {n: Tensor.over(n, t) for n, t in self._core.inputs.items()}
        return self._tensors

    def model_name(self) -> str:
        return self._core.model_name

    def model_version(self) -> int:
        return int(self._core.model_version or -1)

    def request_id(self) -> str:
        return self._core.id

    def correlation_id(self) -> int | str:
        return self._core.correlation_id

    def flags(self) -> int:
        return self._flags

    def set_flags(self, flags: int) -> None:
        self._flags = integer(flags, "flags", UINT32)

    def timeout(self) -> int:
        """In microseconds; 0 for none."""
        return self._core.timeout

    def priority(self) -> int:
        return self._core.priority

    def parameters(self) -> str:
        """The request's parameters as JSON."""
        return parameters_json(self._core.parameters)

    def requested_output_names(self) -> set[str]:
        """The requested outputs; all outputs of the model if the client named none."""
        if not self._core.requested_outputs and self._reply is not None:
            return set(self._reply.outputs)
        return set(self._core.requested_outputs)

    def preferred_memory(self) -> PreferredMemory | None:
        return self._preferred

    def trace(self) -> InferenceTrace:
        """The trace of a received request; of one that the model made, the one it was given."""
        return self._trace or InferenceTrace(self._core.scope.timeline)

    # -- response -----------------------------------------------------------------------------

    def get_response_sender(self) -> InferenceResponseSender:
        """The request's one sender, which answers it in place of what `execute` returns."""
        if self._reply is None:
            raise TritonModelException("a request that the model made itself has no sender")
        if self._sender is None:
            self._sender = InferenceResponseSender(self._reply)
        return self._sender

    @property
    def has_sender(self) -> bool:
        """Whether the model has taken the sender, so that the answer may come at any time."""
        return self._sender is not None

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled; the model should then stop working on the request."""
        return self._reply is not None and self._reply.is_cancelled()

    def set_release_flags(self, flags: int) -> None:
        """Choose whether `execute` releases the request or reschedules it (contract PY-28).

        A rescheduled request is in a later batch again; for iterative sequences only.
        """
        flags = integer(flags, "flags", UINT32)
        reschedules = flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
        if not reschedules and flags != TRITONSERVER_REQUEST_RELEASE_ALL:
            raise TritonModelException(f"unknown request release flags {flags}")
        if reschedules and not (self._reply is not None and self._reply.iterative):
            raise TritonModelException(
                "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE needs iterative sequences: set"
                " 'sequence_batching.iterative_sequence' in the model's configuration"
            )
        self.rescheduled = reschedules

    # -- call of another model ----------------------------------------------------------------

    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:
        """Call the model and wait for the response; `decoupled` returns an iterator at once."""
        core, streams = self._outgoing(), truth(decoupled, "decoupled")
        call = runtime.current().call(core, decoupled=streams, blocks=not streams)
        if streams:
            return ResponseIterator(call)
        return wait_for_response(call)

    def async_exec(
        self, decoupled: bool = False
    ) -> asyncio.Future[InferenceResponse] | asyncio.Future[ResponseIterator]:
        """As `exec`, without blocking the event loop; the request is sent before it is awaited.

        With `decoupled` the future is done when the first response is there, or the end.
        """
        asyncio.get_running_loop()  # raises where there is none, before anything is sent
        streams = truth(decoupled, "decoupled")
        call = runtime.current().call(self._outgoing(), decoupled=streams, on_loop=True)
        return iterator_future(call) if streams else response_future(call)

    def _outgoing(self) -> CoreRequest:
        """The request to send, with the flags as they are now."""
        core = self._core
        return CoreRequest(
            model_name=core.model_name,
            model_version=core.model_version,
            id=core.id,
            inputs=core.inputs,
            requested_outputs=core.requested_outputs,
            parameters=core.parameters,
            priority=core.priority,
            timeout=core.timeout,
            correlation_id=core.correlation_id,
            sequence_start=bool(self._flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START),
            sequence_end=bool(self._flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END),
            scope=RequestScope(timeline=None if self._trace is None else self._trace.timeline),
        )


def _checked_correlation(given: object) -> int | str:
    """The correlation id, which Triton takes as a number or a `str` and not as bytes."""
    if given is None:
        raise TypeError("'correlation_id' is not an integer or text, but None")
    if isinstance(given, str):
        return text(given, "correlation_id")
    if not isinstance(given, int):
        raise TritonModelException("Correlation ID must be integer or string")
    return integer(given, "correlation_id", UINT64)


def _check_input(tensor: object, request_id: str, model_name: str) -> None:
    if tensor is None:
        raise TritonModelException(
            f"Input tensor for request with id '{request_id}' and model name '{model_name}'"
            " should not be empty."
        )
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a Tensor in inputs, got {type(tensor)}")

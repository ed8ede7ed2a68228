"""Inference requests, their scope, and responses, as they pass through the server."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, dataclass_transform

from penstock.core.call_chain import NestedCall
from penstock.core.errors import InferenceError, InvalidRequestError, UnsupportedError
from penstock.core.http_exchange import HttpExchange, HttpHead
from penstock.core.region import RegionSlice
from penstock.core.tensor import Tensor
from penstock.core.timeline import Timeline

Value = TypeVar("Value")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _frozen(cls: type[Value]) -> type[Value]:
    """A dataclass that is frozen to type checkers only.

    Frozen at run time too, it would take three times as long to construct, several times a request.
    """
    return dataclass(slots=True, eq=False)(cls)


ParameterValue = bool | int | float | str
Parameters = Mapping[str, ParameterValue]


class Sender(NamedTuple):
    """Who sent a request, where the server has tenants, and its priority band, the higher first.

    `label` is how the metrics of the model call the tenant, known once the request is admitted.
    """

    tenant: str
    band: int = 0
    label: str = ""


ReportUsage = Callable[[int, int, int], None]
"""Is called with tokens of a request: of its prompt, of these from a cache, generated so far."""


class _Empty(dict[str, Any]):
    """An empty mapping that is never written to; hashable, as defaults of a dataclass must be."""

    __hash__ = object.__hash__  # type: ignore[assignment]


TEXT_OUTPUT: Final = "text_output"
"""The output of language models that holds their text, named as Triton's."""

_EMPTY = _Empty()
_TEXT_LENGTH = 4
"""Bytes of the length before a text."""
_LONGEST_CORRELATION_ID = 128  # bytes
_INTEGER = re.compile("[+-]?[0-9]{1,19}")

CALL_ID = "x-request-id"
"""Header, or metadata, with the client's id of a call."""

ANY_VERSION = -1
"""The version number of a request that names none: the highest that is ready serves it (R-06)."""


class Draw:
    """What decides which side a request takes, and all that is asked to answer it: one number, 0 to
    1, below 0 until an alias is met, and what was drawn with it so far, by alias. A `shadowed` one
    is that of a copy.
    """

    __slots__ = ("number", "shadowed", "sides")

    def __init__(self, number: float = -1.0, *, shadowed: bool = False) -> None:
        self.number = number
        self.shadowed = shadowed
        self.sides: dict[str, str] = {}


@dataclass(eq=False)
class RequestScope:
    """What the server knows of a request beside what its client said: one object, which it writes.

    A frontend makes it with the request, and who learns more of the request notes it here.
    `deadline` is on the event loop's clock, in seconds, and cancels the request. `call_chain` holds
    the nested calls that led to the request, outermost first. `timeline` is that of what the
    request is part of, where that is traced, and its own once it is admitted. `report_usage` is set
    where tokens are counted. `sender` is known where the server has tenants; model processes know
    no more of it than its label. `waited` are the nanoseconds that it waited there for its tenant's
    turn. `call_id` is the `x-request-id` of its call, by which it may be stopped besides by its
    `id`. `infer` gives the model whose application answers an exchange a request, and returns the
    `ResponseStream` of its responses. `headers` are those of its call, by names in lower case;
    `draw` is made by the first alias that it meets, or before, to be that of all its parts.
    """

    deadline: float | None = None
    call_chain: tuple[NestedCall, ...] = ()
    timeline: Timeline | None = None
    report_usage: ReportUsage | None = None
    sender: Sender | None = None
    waited: int = 0
    call_id: str = ""
    infer: Callable[[InferenceRequest], Any] | None = None
    headers: Mapping[str, str] | None = None
    draw: Draw | None = None

    def part(self) -> RequestScope:
        """The scope of a request that is made to answer this one; its tokens are its own."""
        return RequestScope(
            self.deadline,
            self.call_chain,
            self.timeline,
            sender=self.sender,
            draw=self.common_draw(),
        )

    def common_draw(self) -> Draw:
        """The draw of the request and of what is asked to answer it."""
        if self.draw is None:
            self.draw = Draw()
        return self.draw


class _NoScope(RequestScope):
    """The scope of requests that were made without one, in which nothing can be noted."""

    def __init__(self) -> None:
        pass  # all fields are the class's defaults

    def common_draw(self) -> Draw:
        return Draw()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"'{name}' of a request without a scope: make it with scope=RequestScope()"
        )


NO_SCOPE: Final = _NoScope()
"""The empty scope of requests that were made without one; it cannot be written."""


class InferenceRequest(NamedTuple):
    """One inference request as the client said it, the same for all frontends and backends.

    `requested_outputs` empty means all. `correlation_id` 0 or empty means no sequence. `timeout`
    is in microseconds, 0 for none; `priority` 0 is the model's default level. `classes` holds, by
    output, how many classes the client wants in place of the values; `output_places` the slices of
    the client's shared memory that outputs are written to. Requests of equal `template` differ only
    in scope and in the contents, not the sizes, of their tensors. `on_device` names outputs that
    may stay in device memory (`DeviceTensor`), since only models that share the device consume
    them. `exchange` is set where a client talks HTTP with the model's own application; then there
    are no tensors, and every response is an `ExchangePart`. `scope` is what the server knows.
    Requests are equal only to themselves; `request._replace(inputs=...)` is one with other inputs
    and the same scope.
    """

    model_name: str
    model_version: str = ""
    id: str = ""
    inputs: Mapping[str, Tensor] = _EMPTY
    requested_outputs: tuple[str, ...] = ()
    parameters: Parameters = _EMPTY
    priority: int = 0
    timeout: int = 0
    correlation_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    classes: Mapping[str, int] = _EMPTY
    output_places: Mapping[str, RegionSlice] = _EMPTY
    template: Hashable = None
    on_device: frozenset[str] = frozenset()
    exchange: HttpExchange | None = None
    scope: RequestScope = NO_SCOPE

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return id(self)

    def mark(self, activity: str) -> None:
        """Note in the request's trace that something happens now; nothing where it is not traced.

        Names that end in `_START` and `_END` are the two ends of a span, others are events (T-18).
        """
        if self.scope.timeline is not None:
            self.scope.timeline.mark(str(activity))


@_frozen
class InferenceResponse:
    """One response. `final` marks the last of its request; `error` is set on a failed one.

    A stream may also end without a final response: then its end is the final flag (DC-02).
    """

    outputs: Mapping[str, Tensor] = _EMPTY
    parameters: Parameters = _EMPTY
    final: bool = False
    error: InferenceError | None = None

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        size = 0
        for tensor in self.outputs.values():  # a generator takes longer
            size += tensor.nbytes
        return size

    @property
    def empty(self) -> bool:
        """Whether it has no outputs."""
        return not self.outputs

    def with_outputs(self, outputs: Mapping[str, Tensor]) -> InferenceResponse:
        """This response, with other outputs."""
        return InferenceResponse(outputs, self.parameters, self.final, self.error)

    def as_final(self) -> InferenceResponse:
        """This response, marked as the last of its request."""
        if self.final:
            return self
        return InferenceResponse(self.outputs, self.parameters, True, self.error)


class TextResponse(InferenceResponse):
    """A response of a language model with nothing but a text, in UTF-8: its output `TEXT_OUTPUT`.

    A tensor is made of it only where one is asked for: that costs as much as all else that happens
    to a token.
    """

    __slots__ = ("text",)

    parameters = _EMPTY
    error = None

    def __init__(self, text: bytes, *, final: bool = False) -> None:
        self.text = text
        object.__setattr__(self, "final", final)

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        """The text as a tensor."""
        return {TEXT_OUTPUT: Tensor.from_strings([self.text])}

    @property
    def size(self) -> int:
        """Bytes of its tensor."""
        return _TEXT_LENGTH + len(self.text)

    @property
    def empty(self) -> bool:
        return False

    def as_final(self) -> InferenceResponse:
        return self if self.final else TextResponse(self.text, final=True)


@_frozen
class ExchangePart(InferenceResponse):
    """A part of the answer to an exchange over HTTP: its head, which comes first, or of its body.

    One that carries an `error` may have a body as well, in which the error is told.
    """

    head: HttpHead | None = None
    body: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.body)

    def as_final(self) -> ExchangePart:
        """This part, marked as the last one."""
        return ExchangePart(final=True, error=self.error, head=self.head, body=self.body)


def rows_of(request: InferenceRequest, max_batch_size: int) -> int:
    """Batch rows that a request adds: the first dimension of its inputs, or 1 without batching."""
    if not max_batch_size:
        return 1
    return next((t.shape[0] for t in request.inputs.values() if t.shape), 1)


def text_correlation_id(text: str) -> str:
    """Check a textual correlation id; raises `UnsupportedError` if it is too long."""
    if len(text.encode("utf-8", "surrogateescape")) > _LONGEST_CORRELATION_ID:
        raise UnsupportedError(
            f"string correlation ID cannot be longer than {_LONGEST_CORRELATION_ID} characters"
        )
    return text


def parse_version(text: str) -> int:
    """Parse the version of a request; empty is `ANY_VERSION` (contract G-32).

    Raises `InvalidRequestError`, in Triton's words.
    """
    if not text:
        return ANY_VERSION
    version = int(text) if _INTEGER.fullmatch(text) else 1 << 63
    if not -(1 << 63) <= version < 1 << 63:
        raise InvalidRequestError(
            f"failed to get model version from specified version string '{text}' "
            "(details: stol), version should be an integral value > 0"
        )
    if version < 0:
        raise InvalidRequestError(
            f"invalid model version specified '{text}' , version should be an integral value > 0"
        )
    return version

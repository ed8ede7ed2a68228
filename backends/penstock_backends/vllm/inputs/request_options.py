"""`RequestOptions`: options of a request to the engine, besides prompt and sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.backend import InferenceRequest
from penstock_backends.language_model import refuse
from penstock_backends.language_model.parameters import as_integer

RANK: Final = "data_parallel_rank"
RANK_HEADER: Final = "x-data-parallel-rank"
"""The same as a header, as in vLLM's own server; ours forwards it where it is configured to."""

NAMES: Final[tuple[str, ...]] = (
    "priority",
    "cache_salt",
    "session_id",
    "traceparent",
    "tracestate",
    RANK,
    RANK_HEADER,
)
"""Parameters that are options: of the request, or, which come first, of the sampling."""

_TEXTS: Final = ("cache_salt", "session_id", "traceparent", "tracestate")
NEEDS_POLICY: Final = 'needs "scheduling_policy": "priority" in the model\'s model.json'

_PRIORITIES: Final = 1 << 31
_RANKS: Final = 1 << 16
_LONGEST: Final = 512
"""Characters of a text among the options."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of one request; lower priorities are served first.

    `trace` are the headers of the span that the request is part of at the client;
    `data_parallel_rank` is the engine that serves it, where there are several.
    """

    priority: int = 0
    cache_salt: str | None = None
    session_id: str | None = None
    trace: Mapping[str, str] | None = None
    data_parallel_rank: int | None = None


NO_OPTIONS: Final = RequestOptions()


def read_options(
    request: InferenceRequest, parameters: Mapping[str, Any], *, by_priority: bool
) -> tuple[RequestOptions, dict[str, Any]]:
    """The options, and the parameters that are left; raises `InvalidRequestError`.

    `by_priority`: whether the engine's scheduler looks at priorities. The request's own is a hint,
    which other schedulers may leave aside; one among the parameters is meant for the engine.
    """
    left = _with_plain_header(parameters)
    found = {name: left.pop(name) for name in NAMES if name in left}
    given = _with_plain_header(request.parameters)
    for name in NAMES:
        if name not in found and name in given:
            found[name] = given[name]
    if not found and not request.priority:
        return NO_OPTIONS, left
    if found.get("priority") and not by_priority:
        refuse("priority", NEEDS_POLICY)
    texts = {name: _text(name, found) for name in _TEXTS if name in found}
    trace: dict[str, str] = {
        name: texts[name] for name in ("traceparent", "tracestate") if name in texts
    }
    return (
        RequestOptions(
            priority=_priority(found.get("priority", request.priority)),
            cache_salt=texts.get("cache_salt"),
            session_id=texts.get("session_id"),
            trace=trace if "traceparent" in trace else None,
            data_parallel_rank=_rank(found),
        ),
        left,
    )


def _with_plain_header(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, with the header in lower case: over HTTP it comes as the client wrote it."""
    return {
        RANK_HEADER if name.lower() == RANK_HEADER else name: value
        for name, value in parameters.items()
    }


def _priority(given: Any) -> int:
    value = as_integer("priority", given)
    if not -_PRIORITIES <= value < _PRIORITIES:
        refuse("priority", f"must be between {-_PRIORITIES} and {_PRIORITIES - 1}, not {value}")
    return value


def _rank(found: Mapping[str, Any]) -> int | None:
    """The rank of the engine that is to serve the request; vLLM knows how many there are."""
    for name in (RANK, RANK_HEADER):
        if name in found:
            rank = as_integer(name, found[name])
            if not 0 <= rank < _RANKS:
                refuse(name, f"must be between 0 and {_RANKS - 1}, not {rank}")
            return rank
    return None


def _text(name: str, found: Mapping[str, Any]) -> str:
    value = found[name]
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        refuse(name, f"must be a text of 1 to {_LONGEST} characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        refuse(name, f"cannot be encoded: {error}")
    return value

"""W3C trace context and baggage of a caller, from gRPC metadata or HTTP headers (GT-19, T-16)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.core.timeline import TraceContext

Fields = Iterable[tuple[str, str | bytes]]
"""Names in lower case and values, in the order of the message; names may repeat."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MEMBER = re.compile(
    r"([a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13}|[a-z][_0-9a-z\-*/]{0,255})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_BAGGAGE = re.compile(r"[\x20-\x7e\t]*")

_MOST_MEMBERS = 32
_LONG_MEMBER = 128
_LONGEST_STATE = 512
_LONGEST_BAGGAGE = 8192


def read_context(headers: Mapping[str, str], fields: Fields = ()) -> TraceContext | None:
    """The caller's span; `None` without a valid `traceparent`, which starts a new trace.

    `headers` have one value for each name, `fields` all of them where the message repeats names.
    Version ff, ids of zeros, digits in upper case and wrong lengths are not valid; a later version
    than 00 may have more fields (W3C Trace Context, 3.2 and 4.3). A state that is not valid is left
    out, one that is too long is cut (3.3.1.5), and baggage beyond its limit is left out.
    """
    text = headers.get("traceparent")
    if text is None:
        return None
    found = _TRACEPARENT.fullmatch(text.strip(" \t"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    trace, span = int(trace_id, 16), int(span_id, 16)
    if not trace or not span:
        return None
    values = _values(headers, fields)
    if len(values["traceparent"]) > 1:
        return None
    state = trace_state(values["tracestate"])
    sampled = bool(int(flags, 16) & 1)
    return TraceContext(trace, span, sampled, state, baggage(values["baggage"]))


def trace_state(values: Iterable[str]) -> str:
    """The members of all `tracestate` headers, as one; empty where one is not valid."""
    members = [member.strip(" \t") for value in values for member in value.split(",")]
    members = [member for member in members if member]
    keys = {member.partition("=")[0] for member in members}
    if len(members) > _MOST_MEMBERS or len(keys) < len(members):
        return ""
    if not all(map(_MEMBER.fullmatch, members)):
        return ""
    if _length(members) > _LONGEST_STATE:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while _length(members) > _LONGEST_STATE:
        members.pop()
    return ",".join(members)


def baggage(values: Iterable[str]) -> str:
    """All `baggage` headers as one; empty where that is too long, or is not text of a header."""
    text = ",".join(filter(None, (value.strip(" \t") for value in values)))
    return text if len(text) <= _LONGEST_BAGGAGE and _BAGGAGE.fullmatch(text) else ""


def _values(headers: Mapping[str, str], fields: Fields) -> dict[str, list[str]]:
    """The values of each of the three headers."""
    found: dict[str, list[str]] = {"traceparent": [], "tracestate": [], "baggage": []}
    for name, value in fields:
        if name in found and isinstance(value, str):
            found[name].append(value)
    for name, values in found.items():
        if not values and name in headers:
            values.append(headers[name])
    return found


def _length(members: list[str]) -> int:
    return sum(map(len, members)) + len(members) - 1

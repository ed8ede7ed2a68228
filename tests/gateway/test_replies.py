"""Replies as they are written: statuses, header fields and bodies."""

from __future__ import annotations

import pytest

from penstock.core.errors import (
    AlreadyExistsError,
    ConfigError,
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    RejectedError,
    RequestCancelledError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from penstock.gateway.replies import (
    Refusal,
    error_reply,
    json_reply,
    method_not_allowed,
    reply,
)

JSON = (b"content-type", b"application/json")


@pytest.mark.contract("H-28")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InferenceError, 400),
        (InvalidRequestError, 400),
        (ConfigError, 400),
        (AlreadyExistsError, 400),
        (RequestCancelledError, 400),
        (UnauthenticatedError, 401),
        (PermissionDeniedError, 403),
        (NotFoundError, 404),
        (ExhaustedError, 429),
        (InternalError, 500),
        (UnsupportedError, 501),
        (UnavailableError, 503),
        (RejectedError, 503),
        (DeadlineExceededError, 504),
    ],
)
def test_an_error_has_a_status_by_its_class(error: type[InferenceError], status: int) -> None:
    made = error("why")
    refusal = Refusal(made)
    assert (refusal.status, refusal.parts, refusal.error) == (status, [b'{"error":"why"}'], made)
    fields = [JSON]
    if error is ExhaustedError:
        fields.append((b"retry-after", b"1"))
    if error is UnauthenticatedError:
        fields.append((b"www-authenticate", b"Bearer"))
    assert refusal.fields == fields


def test_who_is_refused_is_told_when_to_come_back() -> None:
    refusal = Refusal(ExhaustedError("full", retry_after=7), "text/plain")
    assert refusal.fields == [(b"content-type", b"text/plain"), (b"retry-after", b"7")]


def test_replies_have_exactly_their_content_type() -> None:
    plain = reply(b"x", 201, "text/plain")
    assert (plain.status, plain.fields, plain.parts) == (
        *(201, [(b"content-type", b"text/plain")]),
        [b"x"],
    )
    assert (reply().status, reply().fields, reply().parts) == (200, [JSON], [b""])
    assert json_reply({"a": [1]}).parts == [b'{"a":[1]}']
    refused = error_reply("why", 418)
    assert (refused.status, refused.fields, refused.parts) == (418, [JSON], [b'{"error":"why"}'])


def test_a_method_that_is_not_taken_is_told_those_that_are() -> None:
    refused = method_not_allowed(("GET", "POST"))
    assert (refused.status, refused.parts) == (405, [b'{"error":"Method Not Allowed"}'])
    assert refused.fields == [JSON, (b"allow", b"GET, POST")]

"""Errors of the client: one class for each kind of gRPC status, with the server's text."""

from __future__ import annotations

from typing import ClassVar


class ClientError(Exception):
    """Base of all errors of the client.

    `code` is the number of the gRPC status; `address` is the server that answered or failed to.
    """

    code: ClassVar[int] = 2

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.address = address


class CancelledError(ClientError):
    """The server cancelled the request."""

    code = 1


class UnknownError(ClientError):
    """An error of a kind that the server does not name."""


class InvalidArgumentError(ClientError):
    """The request is wrong and will stay wrong: a name, a shape, a datatype."""

    code = 3


class DeadlineExceededError(ClientError):
    """The deadline of the call has passed; its request was cancelled."""

    code = 4


class NotFoundError(ClientError):
    """There is no such model, version or object."""

    code = 5


class AlreadyExistsError(ClientError):
    """The name is taken."""

    code = 6


class PermissionDeniedError(ClientError):
    """The caller may not do this."""

    code = 7


class ResourceExhaustedError(ClientError):
    """A limit is reached; trying again in `retry_after` seconds may succeed, where known."""

    code = 8

    def __init__(self, message: str, address: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, address)
        self.retry_after = retry_after


class FailedPreconditionError(ClientError):
    """The server is not in the state that this needs."""

    code = 9


class AbortedError(ClientError):
    """The server gave the request up."""

    code = 10


class OutOfRangeError(ClientError):
    """A value lies outside of what is there."""

    code = 11


class UnimplementedError(ClientError):
    """The server, or this transport, does not do this."""

    code = 12


class InternalError(ClientError):
    """The server or the model failed."""

    code = 13


class UnavailableError(ClientError):
    """The server or the model cannot answer now; trying again may succeed."""

    code = 14


class NoServerError(UnavailableError):
    """No connection was made, so the request has not been sent."""


class ConnectionLostError(UnavailableError):
    """The connection ended before the answer did; the server may have executed the request."""


class DataLossError(ClientError):
    """Data was lost."""

    code = 15


class UnauthenticatedError(ClientError):
    """The credentials are missing or wrong."""

    code = 16


_BY_CODE: dict[int, type[ClientError]] = {
    each.code: each
    for each in (
        CancelledError,
        UnknownError,
        InvalidArgumentError,
        DeadlineExceededError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        AbortedError,
        OutOfRangeError,
        UnimplementedError,
        InternalError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
    )
}


def error_of(
    code: int, message: str, address: str = "", retry_after: float | None = None
) -> ClientError:
    """The error for a gRPC status."""
    kind = _BY_CODE.get(code, UnknownError)
    if kind is ResourceExhaustedError:
        return ResourceExhaustedError(message, address, retry_after)
    return kind(message, address)


def no_server(address: str, reason: str) -> NoServerError:
    """The error for an address without an answer."""
    return NoServerError(
        f"no server answers at {address} ({reason}); is it started, and is this its address?",
        address,
    )


def connection_lost(address: str, reason: str) -> ConnectionLostError:
    """The error for a server that went away during the call."""
    return ConnectionLostError(
        f"the connection to {address} ended before the answer did ({reason});"
        " the server may have stopped",
        address,
    )


def deadline_exceeded(address: str = "") -> DeadlineExceededError:
    """The error for a call that took too long."""
    return DeadlineExceededError("the deadline of the call has passed", address)

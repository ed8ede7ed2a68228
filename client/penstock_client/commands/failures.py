"""Failures of some of a command's requests, which leave the others alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from penstock_client.client import (
    ClientError,
    InvalidArgumentError,
    NoServerError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)

Item = TypeVar("Item")
_OF_ALL = (NoServerError, NotFoundError, PermissionDeniedError, UnauthenticatedError)


class Failures:
    """The failures so far: one that all others would share decides the status, else the first."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._first: ClientError | None = None
        self._of_all: ClientError | None = None
        self._failed = 0
        self._sent = 0
        self._left_out = False

    def sent(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items to send, one by one, until a failure that all others would share."""
        for item in items:
            if self._of_all is not None:
                self._left_out = True
                return
            self._sent += 1
            yield item

    def add(self, error: ClientError) -> None:
        """Note a failure."""
        self._failed += 1
        self._first = self._first or error
        # Without an address it was found here, in the model's metadata.
        wrong_model = isinstance(error, InvalidArgumentError) and not error.address
        if wrong_model or isinstance(error, _OF_ALL):
            self._of_all = self._of_all or error

    def raise_told(self) -> None:
        """Raise the failure that decides, if there is one, with what became of the others."""
        decides = self._of_all or self._first
        if decides is None:
            return
        if self._sent > 1 or self._left_out:
            count = f"{self._failed} of {self._sent} {self._kind} failed"
            rest = ", and the rest was not sent" if self._left_out else ""
            which = "the reason" if self._of_all else "the first"
            decides.message = f"{count}{rest}; {which}: {decides.message}"
        raise decides

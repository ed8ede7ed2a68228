"""Failures of some of a command's requests, which leave the others alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from penstock.client import (
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
    """What has failed so far; the first failure decides the exit status."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._first: ClientError | None = None
        self._failed = 0
        self._sent = 0
        self._hopeless = False

    def sent(self, items: Iterable[Item]) -> Iterator[Item]:
        """What is to be sent, one by one, until a failure says that all others would fail too."""
        for item in items:
            if self._hopeless:
                return
            self._sent += 1
            yield item

    def add(self, error: ClientError) -> None:
        """Note a failure."""
        self._first = self._first or error
        self._failed += 1
        # Without an address it was found here, in the model's metadata.
        wrong_model = isinstance(error, InvalidArgumentError) and not error.address
        self._hopeless = self._hopeless or wrong_model or isinstance(error, _OF_ALL)

    def raise_first(self) -> None:
        """Raise the first failure, with their number if there was more to do."""
        if self._first is None:
            return
        if self._sent > 1:
            count = f"{self._failed} of {self._sent} {self._kind} failed"
            self._first.message = f"{count}; the first: {self._first.message}"
        raise self._first

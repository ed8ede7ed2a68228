"""`Output`: a standard output that tells of a full disk in words, whoever writes to it."""

from __future__ import annotations

from typing import Any, NoReturn, TextIO


class OutputError(OSError):
    """The standard output cannot be written, for another reason than that nobody reads it."""


class Output:
    """A stream whose errors are `OutputError`; `failure` is the last one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OutputError | None = None

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except OSError as error:
            self._fail(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _fail(self, error: OSError) -> NoReturn:
        if isinstance(error, BrokenPipeError):
            raise error
        told = f"the standard output cannot be written: {error.strerror}"
        self.failure = OutputError(told)
        self.failure.strerror = error.strerror
        raise self.failure from error

"""What a load logs as a warning, kept for the report of a check."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import InferenceError

_LOGGERS = ("penstock", "penstock_backends")


class _Kept(logging.Handler):
    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._texts:
            self._texts.append(text)


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """The texts of warnings and errors that are logged meanwhile, each once; they go no further."""
    texts: list[str] = []
    handler = _Kept(texts)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(each.propagate, each.handlers) for each in loggers]
    for each in loggers:
        each.propagate, each.handlers = False, [handler]
    try:
        yield texts
    finally:
        for each, (propagate, handlers) in zip(loggers, before, strict=True):
            each.propagate, each.handlers = propagate, handlers


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep nothing of what is logged meanwhile."""
    with kept_warnings():
        yield


def logged_reason(error: InferenceError, name: str, logged: list[str]) -> InferenceError:
    """The reason that a load logs, where its client is not told."""
    told = f"failed to poll model '{name}': "
    reason = next((text.removeprefix(told) for text in logged if text.startswith(told)), "")
    return type(error)(reason).with_traceback(error.__traceback__) if reason else error

"""Formatting of a model's exceptions for clients and the log, in the form of Triton's backend.

`ValueError: boom`, an empty line, `At:`, and a line `  /path/model.py(11): execute` for each
frame, the innermost first.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType

from penstock.core.errors import ConfigError, InferenceError, InternalError
from penstock.hosting.link.messages import LONGEST_TEXT

_OWN = ("penstock", "penstock_backends", "concurrent.futures")
"""Packages whose frames are hidden: they lie between the model's and say nothing about it."""

_MOST_FRAMES = 60
"""Frames that are shown; of an endless recursion the two ends are enough."""


def describe(error: BaseException) -> str:
    """The exception and its traceback; then, in the same form, the exceptions that caused it.

    Frames of the server and of the import machinery are left out: they are the same for every
    model.
    """
    text, *causes = (_description(cause) for cause in _chain(error))
    for cause in causes:
        text = f"{text.rstrip()}\n\nCaused by: {cause}"
    return text


def failure(error: BaseException) -> tuple[str, str]:
    """Error code and message for a model that cannot be loaded."""
    if isinstance(error, InferenceError):
        return error.code, error.message + _line_of(error)
    return InternalError.code, describe(error)


def _line_of(error: InferenceError) -> str:
    """The model's line that makes a wrong configuration, in parentheses; empty for other errors."""
    if not isinstance(error, ConfigError):
        return ""
    own = _own_directories()
    places = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    # Functions that dataclasses generate have "<string>" for a file.
    lines = [
        f" ({file}, line {line})"
        for file, line in places
        if file[0] != "<" and not _is_hidden(file, own)
    ]
    return lines[-1] if lines else ""


def place(error: BaseException) -> tuple[str, int]:
    """File and line where an exception was raised, for its log line."""
    trace = error.__traceback__
    if trace is None or isinstance(error, InferenceError):  # of ours: the model has no line for it
        return "model.py", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno


def printable(text: str) -> str:
    """The text without lone surrogates, which file names may contain but no protocol carries.

    A long one is cut.
    """
    return text[:LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()


def _description(error: BaseException) -> str:
    lines = [_headline(error), *getattr(error, "__notes__", ())]
    frames = _frames(error.__traceback__)
    if not frames:
        return "\n".join(lines)
    return "\n".join([*lines, "", "At:", *frames, ""])


def _headline(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {str(error) or '<EMPTY MESSAGE>'}"
    except Exception as another:  # the exception's own code, which may be wrong too
        return f"{name}: <{type(another).__name__} while making the message>"


def _frames(trace: TracebackType | None) -> list[str]:
    """A line for each frame, the innermost first."""
    own = _own_directories()
    lines = [
        f"  {frame.f_code.co_filename}({line}): {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(trace)
        if not _is_hidden(frame.f_code.co_filename, own)
    ]
    if (more := len(lines) - _MOST_FRAMES) > 0:
        half = _MOST_FRAMES // 2
        lines[half:-half] = [f"  ... {more} more frames"]
    return lines[::-1]


def _is_hidden(file: str, own: tuple[str, ...]) -> bool:
    return file.startswith(("<frozen importlib", *own))


def _own_directories() -> tuple[str, ...]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _OWN)
    return tuple(os.path.dirname(file) + os.sep for file in files if file)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, its causes and the members of groups, each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
        if current.__cause__ is not None:
            waiting.append(current.__cause__)

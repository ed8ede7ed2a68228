"""Times of requests from files: a trace of requests, or intervals between them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_client.perf.errors import PerfError
from penstock_client.perf.requests.lengths import LONGEST

_LAST = 1e15  # milliseconds, which is some ten thousand years
Lengths = tuple[tuple[int, int], ...]
"""Words of the prompt and tokens of the answer, for each request."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Times of requests in seconds after the first, and their lengths where the file has them."""

    times: tuple[float, ...]
    lengths: Lengths = ()


def read_trace(path: Path) -> Trace:
    """Lines of JSON with `timestamp` in milliseconds, and `input_length` and `output_length`.

    This is the form of published traces of language models. Raises `PerfError`.
    """
    entries = []
    for number, line in enumerate(_lines(path), 1):
        try:
            entries.append(_entry(json.loads(line)))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise PerfError(
                f"{path}: line {number} is not an object with a number of milliseconds as"
                f' "timestamp": {error}'
            ) from error
    if not entries:
        raise PerfError(f"{path}: there is no request in it")
    entries.sort()
    first = entries[0][0]
    lengths = tuple((words, tokens) for _, words, tokens in entries)
    told = any(words or tokens for words, tokens in lengths)
    return Trace(tuple((at - first) / 1e3 for at, _, _ in entries), lengths if told else ())


def _entry(found: Any) -> tuple[float, int, int]:
    at = float(found["timestamp"])
    lengths = int(found.get("input_length", 0)), int(found.get("output_length", 0))
    if not abs(at) < _LAST or not all(0 <= each <= LONGEST for each in lengths):
        raise ValueError(f"a time or a length cannot be: {found}")
    return (at, *lengths)


def read_intervals(path: Path) -> tuple[float, ...]:
    """Whole microseconds, one in each line, as perf_analyzer has them; raises `PerfError`."""
    try:
        gaps = tuple(int(line) / 1e6 for line in _lines(path))
    except ValueError as error:
        raise PerfError(f"{path}: not a number of microseconds: {error}") from error
    except OverflowError as error:
        raise PerfError(f"{path}: an interval is too long: {error}") from error
    if not gaps or min(gaps) < 0 or not sum(gaps):
        raise PerfError(f"{path}: there are no intervals in it that last")
    return gaps


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise PerfError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return [line for line in text.splitlines() if line.strip()]

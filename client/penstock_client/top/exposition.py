"""Parses Prometheus exposition: text in format 0.0.4, or OpenMetrics without its exemplars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]

_SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+([^ \t]+)', re.ASCII
)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}


class Sample(NamedTuple):
    """One line of a metrics page; `labels` in the order of the page."""

    name: str
    labels: Labels
    value: float


def parse(text: str) -> Iterator[Sample]:
    """The samples of a metrics page; comments and other lines are left out."""
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        found = _SAMPLE.match(line)
        value = None if found is None else _number(found[3])
        if found is not None and value is not None:
            yield Sample(found[1], _labels(found[2] or ""), value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@lru_cache(maxsize=1 << 16)  # the same labels stand in many lines, and in each scrape
def _labels(text: str) -> Labels:
    return tuple((name, _unescaped(value)) for name, value in _LABEL.findall(text))


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), value)

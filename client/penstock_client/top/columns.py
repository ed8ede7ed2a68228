"""The columns of the table of models, and which of them a terminal has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock_client.top.model_view import ModelView
from penstock_client.top.texts import UNKNOWN, count, milliseconds, percent, size

NAME_WIDTH = 16
"""Cells that the name of a model has at least."""


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` says which columns go first where there is no room: those of the highest number.

    `optional` ones are shown only if a model has a value. `sort` is the order that they show.
    """

    title: str
    width: int
    rank: int
    text: Callable[[ModelView], str]
    optional: bool = False
    sort: str = ""
    left: bool = False


_SHORT_REASONS = ("asleep", "shrunk", "on demand")
"""Reasons of models that do nothing, of a server that loads models when they are called."""

COLUMNS = (
    Column("ver", 4, 9, lambda model: model.key.version),
    Column("state", 11, 4, lambda model: _state(model) or UNKNOWN, left=True),
    Column("req/s", 7, 0, lambda model: count(model.requests), sort="rate"),
    Column("inf/s", 7, 11, lambda model: count(model.inferences)),
    Column("batch", 5, 6, lambda model: count(model.batch)),
    Column("queue", 5, 1, lambda model: count(model.pending), sort="queue"),
    Column("flight", 6, 7, lambda model: count(model.in_flight), optional=True),
    Column("ms", 7, 0, lambda model: milliseconds(model.latency), sort="latency"),
    Column("queue ms", 8, 5, lambda model: milliseconds(model.queue)),
    Column("comp ms", 7, 8, lambda model: milliseconds(model.compute)),
    Column("err/s", 5, 2, lambda model: count(model.errors), sort="errors"),
    Column("cache", 5, 12, lambda model: percent(model.cache), optional=True),
    Column("tok/s", 6, 3, lambda model: count(model.tokens), optional=True),
    Column("memory", 8, 10, lambda model: size(model.memory), optional=True),
)


def _state(model: ModelView) -> str:
    """The state; of a model that rests or waits for a call, which of these."""
    return model.reason if model.reason in _SHORT_REASONS else model.state


def fitting(columns: Sequence[Column], width: int | None) -> list[Column]:
    """The columns that fit beside the name into `width` cells, in order; `None`: all."""
    chosen = list(columns)
    while width is not None and chosen and _width(chosen) > width:
        chosen.remove(max(chosen, key=lambda column: column.rank))
    return chosen


def _width(columns: Sequence[Column]) -> int:
    return NAME_WIDTH + sum(column.width + 1 for column in columns)


def with_values(models: Sequence[ModelView]) -> list[Column]:
    """The columns without optional ones that are empty for all of these models."""
    return [
        column
        for column in COLUMNS
        if not column.optional or any(column.text(model) != UNKNOWN for model in models)
    ]

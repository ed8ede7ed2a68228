"""Tables of models and of model processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from penstock_client.reading.counters import ModelKey, ProcessKey, ProcessNumbers
from penstock_client.top.columns import NAME_WIDTH, Column, fitting, with_values
from penstock_client.top.model_view import ModelView
from penstock_client.top.texts import UNKNOWN, count, printable, size

_HEAD = "bold"
_SELECTED = "reverse"
_STALE = "dim"
_STATES = {"READY": "green", "LOADING": "yellow", "UNLOADING": "yellow", "UNAVAILABLE": "red"}


def plain_table(wide: bool) -> Table:
    """A table without lines; a `wide` one takes the whole width."""
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=wide, header_style=_HEAD)


def models_table(
    models: Sequence[ModelView],
    *,
    every: Sequence[ModelView] | None = None,
    sort: str = "",
    selected: ModelKey | None = None,
    stale: bool = False,
    width: int | None = None,
) -> Table:
    """The models in their order; those of `every`, of which they are a part, choose the columns.

    A terminal is `width` cells wide; without one the table is as wide as its text.
    """
    columns = fitting(with_values(models if every is None else every), width)
    table = plain_table(wide=width is not None)
    table.add_column("model", no_wrap=True, min_width=NAME_WIDTH if width else None, ratio=1)
    for column in columns:
        title = f"{column.title}*" if sort and column.sort == sort else column.title
        least = column.width if width is not None else None
        justify = "left" if column.left else "right"
        table.add_column(title, no_wrap=True, min_width=least, justify=justify)  # type: ignore[arg-type]
    for model in models:
        style = _SELECTED if model.key == selected else _STALE if stale else ""
        cells = [_cell(column, model) for column in columns]
        table.add_row(Text(printable(model.key.name)), *cells, style=style)
    return table


def _cell(column: Column, model: ModelView) -> Text:
    text = printable(column.text(model))
    if column.title == "state":
        return Text(text, _STATES.get(model.state, ""))
    if column.title == "err/s" and model.errors:
        return Text(text, "red")
    return Text(text)


def processes_table(
    processes: Mapping[ProcessKey, ProcessNumbers], *, stale: bool = False, wide: bool = False
) -> Table:
    """The model processes in the order given."""
    table = plain_table(wide)
    table.add_column("model process", no_wrap=True, ratio=1)
    for title in ("ver", "pid", "memory", "restarts"):
        table.add_column(title, no_wrap=True, justify="right", min_width=8)
    for key, numbers in processes.items():
        table.add_row(
            Text(printable(key.instance or key.model)),
            Text(printable(key.version)),
            Text(str(numbers.pid)) if numbers.up and numbers.pid else Text("down", "red"),
            Text(size(numbers.memory)),
            Text(count(numbers.restarts), "red" if numbers.restarts else ""),
            style=_STALE if stale else "",
        )
    if not processes:
        table.add_row(Text(UNKNOWN))
    return table

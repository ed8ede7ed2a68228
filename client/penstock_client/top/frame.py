"""One frame of the screen: header, the table of models or the details of one, and the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rich.console import Group, RenderableType
from rich.text import Text

from penstock_client.top.details import details
from penstock_client.top.header import header
from penstock_client.top.model_view import ModelView
from penstock_client.top.navigation import Navigation, window
from penstock_client.top.tables import models_table, processes_table
from penstock_client.top.view import View, sort_models

_KEYS = "q quit  s sort  \N{UPWARDS ARROW}\N{DOWNWARDS ARROW} select  enter details"
_DETAIL_KEYS = "q quit  esc back  \N{UPWARDS ARROW}\N{DOWNWARDS ARROW} other model"
_LEAST_ROWS = 3
_TABLE_LINES = 4
"""Lines of the screen that are neither the header's nor rows: blank, titles, blank, keys."""
_PROCESS_SHARE = 3
"""Model processes get one of so many lines."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame, the models of its table in their order, and how many of them are seen at once."""

    content: RenderableType
    models: Sequence[ModelView]
    rows: int


def make_frame(
    view: View,
    navigation: Navigation,
    address: str,
    interval: float,
    now: float,
    size: tuple[int, int],
    waiting: str = "",
) -> Frame:
    """The frame for a terminal of `size`, in cells: width and height.

    `waiting` names the endpoints whose answer is late; it is shown beside the keys.
    """
    width, height = size
    head = header(view, address, interval, now)
    models = sort_models(view.models, navigation.sort)
    position = navigation.position([model.key for model in models])
    room = height - len(head.plain.split("\n")) - _TABLE_LINES
    keys = Text(_DETAIL_KEYS if navigation.opened else _KEYS, "dim", no_wrap=True)
    keys.append(f"  {waiting}", "yellow")
    if navigation.opened and models:
        shown = details(models[position], view.processes, stale=view.stale, width=width)
        return Frame(Group(head, keys, Text(), shown), models, max(room, 1))
    lines = _process_lines(view, room)
    rows = max(room - lines, _LEAST_ROWS)
    seen = window(position, len(models), rows)
    table = models_table(
        models[seen.start : seen.stop],
        every=models,
        sort=navigation.sort,
        selected=models[position].key if models else None,
        stale=view.stale,
        width=width,
    )
    parts: list[RenderableType] = [head, keys, Text(), table]
    if lines:
        processes = dict(islice(view.processes.items(), lines - 2))
        parts += [Text(), processes_table(processes, stale=view.stale, wide=True)]
    return Frame(Group(*parts), models, rows)


def _process_lines(view: View, room: int) -> int:
    """Lines for model processes, with a blank one and their titles; 0 if there is no room."""
    wanted = len(view.processes) + 2
    least = min(len(view.models), _LEAST_ROWS)
    lines = min(wanted, max(room // _PROCESS_SHARE, room - len(view.models)))
    return lines if view.processes and lines > 2 and room - lines >= least else 0

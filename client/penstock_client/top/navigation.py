"""Where a user is: sort order, selected model, its details or the table. Knows no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock_client.reading.counters import ModelKey
from penstock_client.top.keys import Key
from penstock_client.top.view import SORTS

_STEPS = {Key.UP: -1, Key.DOWN: 1}
_PAGES = {Key.PAGE_UP: -1, Key.PAGE_DOWN: 1}
_ENDS = {Key.FIRST: 0, Key.LAST: -1}


@dataclass(frozen=True, slots=True)
class Navigation:
    """`selected` is `None` for the first model, whichever that is."""

    sort: str = SORTS[0]
    selected: ModelKey | None = None
    opened: bool = False
    ended: bool = False

    def press(self, key: Key, models: Sequence[ModelKey], rows: int) -> Navigation:
        """After `key`; `models` are the table's in its order, of which `rows` are seen at once."""
        if key is Key.QUIT:
            return replace(self, ended=True)
        if key is Key.SORT:
            return replace(self, sort=SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)])
        if key is Key.BACK:
            return replace(self, opened=False)
        if not models:
            return self
        if key is Key.OPEN:
            return replace(self, selected=models[self.position(models)], opened=True)
        return replace(self, selected=models[self._moved(key, models, rows)])

    def position(self, models: Sequence[ModelKey]) -> int:
        """The row that is selected: the first one if the model is gone."""
        return models.index(self.selected) if self.selected in models else 0

    def _moved(self, key: Key, models: Sequence[ModelKey], rows: int) -> int:
        if key in _ENDS:
            return _ENDS[key]
        step = _STEPS.get(key, 0) + _PAGES.get(key, 0) * max(1, rows)
        return min(max(self.position(models) + step, 0), len(models) - 1)


def window(position: int, count: int, rows: int) -> range:
    """Which of `count` rows are seen, so that the one at `position` is, about in the middle."""
    first = min(max(position - rows // 2, 0), max(count - rows, 0))
    return range(first, min(first + max(rows, 1), count))

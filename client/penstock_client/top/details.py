"""The view of one model: times by phase, batch sizes, failures, its engine and its processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock_client.reading.counters import ProcessKey, ProcessNumbers
from penstock_client.reading.growth import mean
from penstock_client.top.model_view import (
    BatchView,
    CountView,
    Details,
    Distribution,
    ModelView,
    PhaseView,
)
from penstock_client.top.tables import models_table, plain_table, processes_table
from penstock_client.top.texts import UNKNOWN, count, milliseconds, printable

_BAR = 20
"""Cells of the longest bar."""
_MOST_SIZES = 16
"""Batch sizes that are shown each for itself."""
_TWO_COLUMNS = 100
"""Cells of a terminal that has room for two blocks side by side."""


def details(
    model: ModelView,
    processes: Mapping[ProcessKey, ProcessNumbers],
    *,
    stale: bool,
    width: int,
) -> RenderableType:
    """Everything about `model` in blocks, of which empty ones are left out."""
    own = {key: each for key, each in processes.items() if key[:2] == tuple(model.key)}
    left, right = list(_work(model.details)), list(_outcomes(model.details))
    if own:
        right.append(processes_table(own, stale=stale))
    row = models_table([model], stale=stale, width=width)
    reason = [Text(printable(model.reason), "red")] if model.reason else []
    blocks: list[RenderableType] = [row, *reason, Text()]
    if width < _TWO_COLUMNS:
        return Group(*blocks, *_spaced([*left, *right]))
    grid = Table.grid(expand=True, padding=(0, 3, 0, 0))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(Group(*_spaced(left)), Group(*_spaced(right)))
    return Group(*blocks, grid)


def _spaced(blocks: Sequence[RenderableType]) -> Iterator[RenderableType]:
    for block in blocks:
        yield block
        yield Text()


def _work(shown: Details) -> Iterator[RenderableType]:
    if shown.phases:
        yield _phases(shown.phases)
    if shown.batches:
        yield _batches(shown.batches)
    if shown.distributions:
        yield _distributions(shown.distributions)


def _outcomes(shown: Details) -> Iterator[RenderableType]:
    if shown.failures:
        yield _counts("failures", shown.failures)
    if shown.cancelled:
        yield _counts("cancelled while", shown.cancelled)
    if shown.engine:
        yield _counts("engine", shown.engine)


def _table(*titles: str) -> Table:
    """A table with numbers to the right of its first column."""
    table = plain_table(wide=False)
    for number, title in enumerate(titles):
        table.add_column(title, no_wrap=True, justify="right" if number else "left")
    return table


def _phases(phases: Sequence[PhaseView]) -> Table:
    table = _table("phase", "ms now", "ms overall")
    table.add_column("", no_wrap=True)
    shown = [phase.overall if phase.now is None else phase.now for phase in phases]
    longest = max((seconds or 0.0 for seconds in shown), default=0.0)
    for phase, seconds in zip(phases, shown, strict=True):
        table.add_row(
            phase.name.replace("_", " "),
            milliseconds(phase.now),
            milliseconds(phase.overall),
            Text(_bar(seconds or 0.0, longest), "cyan"),
        )
    return table


def _batches(batches: Sequence[BatchView]) -> Table:
    table = _table("batch", "executions", "now/s", "ms each")
    table.add_column("", no_wrap=True)
    shown = grouped(batches)
    most = max(batch.executions for _, batch in shown)
    for rows, batch in shown:
        table.add_row(
            rows,
            count(batch.executions),
            count(batch.rate),
            milliseconds(batch.compute),
            Text(_bar(batch.executions, most), "cyan"),
        )
    return table


def grouped(batches: Sequence[BatchView]) -> list[tuple[str, BatchView]]:
    """The batches with their sizes as text; many are grouped up to each power of two."""
    if len(batches) <= _MOST_SIZES:
        return [(str(batch.rows), batch) for batch in batches]
    groups: dict[int, list[BatchView]] = {}
    for batch in batches:
        groups.setdefault(1 << max(0, batch.rows - 1).bit_length(), []).append(batch)
    return [(_span(most), _together(group)) for most, group in groups.items()]


def _span(most: int) -> str:
    return str(most) if most < 3 else f"{most // 2 + 1}-{most}"


def _together(group: Sequence[BatchView]) -> BatchView:
    executions = sum(batch.executions for batch in group)
    rates = [batch.rate for batch in group if batch.rate is not None]
    seconds = sum((batch.compute or 0.0) * batch.executions for batch in group)
    rate = sum(rates) if rates else None
    return BatchView(group[-1].rows, executions, rate, mean(seconds, executions))


def _bar(value: float, longest: float) -> str:
    if value <= 0 or longest <= 0:
        return ""
    return "\N{FULL BLOCK}" * max(1, round(_BAR * value / longest))


def _counts(title: str, counts: Sequence[CountView]) -> Table:
    table = _table(title, "value", "now/s")
    for one in counts:
        rate = UNKNOWN if one.rate is None else count(one.rate)
        table.add_row(_named(one.name), count(one.count), rate)
    return table


def _distributions(distributions: Sequence[Distribution]) -> Table:
    """Quantiles, each metric in the unit of its name."""
    shares = sorted({share for one in distributions for share in one.quantiles})
    table = _table("distribution", *(f"p{share * 100:g}" for share in shares))
    for one in distributions:
        values = (_small(one.quantiles.get(share)) for share in shares)
        table.add_row(_named(one.name), *values)
    return table


def _named(name: str) -> Text:
    """The name of a metric, without what most of them begin with."""
    return Text(printable(name.removeprefix("penstock_")))


def _small(value: float | None) -> str:
    """A number that may be far below 1, such as seconds."""
    if value is None or value != value:
        return UNKNOWN
    return f"{value:.2g}" if abs(value) < 1 else count(value)

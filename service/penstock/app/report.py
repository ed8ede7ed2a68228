"""The start-up report: tables of backends, models and options in the log (contract M-18)."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from penstock.server.answers import ModelIndexEntry, ServerMetadata
from penstock.settings import Settings
from penstock.telemetry import logging as server_log

logger = logging.getLogger(__name__)

_NARROWEST = 12
"""Characters that a column of a folded table has at least."""


def show_backends(files: Mapping[str, str], settings: Settings) -> None:
    """Log the backends in use, with the file and the configuration of each; `files` is by name.

    An empty table of repository agents precedes it, as Triton prints one.
    """
    _log_table(settings, ("Repository Agent", "Path"), ())
    rows = [(name, file, _configuration(name, settings)) for name, file in files.items()]
    _log_table(settings, ("Backend", "Path", "Config"), rows)


def show_models(
    entries: Sequence[ModelIndexEntry], tried: Sequence[str], settings: Settings
) -> None:
    """Log the model versions and their states; `tried` are the models of the start."""
    rows = [
        (e.name, e.version or "-", ": ".join(filter(None, (e.state, e.reason)))) for e in entries
    ]
    versionless = set(tried) - {entry.name for entry in entries}
    rows += [(name, "-", "Not loaded: No model version was found") for name in versionless]
    rows.sort(key=itemgetter(0))
    _log_table(settings, ("Model", "Version", "Status"), rows)


def show_options(settings: Settings, metadata: ServerMetadata) -> None:
    """Log the server's options, by Triton's names and in its order (contract L-07)."""
    _log_table(settings, ("Option", "Value"), tuple(_options(settings, metadata)))


def _log_table(settings: Settings, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Log a table, which fits a terminal; files and pipes have it as wide as it is."""
    on_terminal = not settings.logging.file and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    server_log.log_table(logger, table(head, rows, width))


def _options(settings: Settings, metadata: ServerMetadata) -> Iterator[tuple[str, str]]:
    repository, devices = settings.repository, settings.devices
    yield "server_id", metadata.name
    yield "server_version", metadata.version
    yield "server_extensions", " ".join(metadata.extensions)
    for at, path in enumerate(repository.paths):
        yield f"model_repository_path[{at}]", path
    yield "model_control_mode", f"MODE_{repository.control_mode.upper()}"
    for at, model in enumerate(sorted(repository.startup_models)):
        yield f"startup_models_{at}", model
    yield "strict_model_config", str(int(not repository.auto_complete_config))
    yield "model_config_name", repository.config_name
    yield "rate_limit", settings.rate_limit.mode.upper()
    yield "min_supported_compute_capability", str(devices.min_supported_compute_capability)
    yield "strict_readiness", str(int(repository.strict_readiness))
    yield "exit_timeout", str(settings.exit_timeout_seconds)
    yield "cache_enabled", str(int(bool(settings.cache.config)))


def _configuration(backend: str, settings: Settings) -> str:
    """A backend's configuration as the JSON that Triton shows (contract B-21)."""
    options = {
        "auto-complete-config": str(settings.repository.auto_complete_config).lower(),
        "min-compute-capability": f"{settings.devices.min_supported_compute_capability:f}",
        "default-max-batch-size": "4",
        **settings.backends.options_for(backend),
    }
    return json.dumps({"cmdline": options}, separators=(",", ":"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Format `rows` under `head`; a column is as wide as its widest cell.

    A cell may hold several lines. Every row has as many cells as `head`. The widest columns are
    folded where the whole would exceed `width`.
    """
    lined = [_lines(row) for row in (head, *rows)]
    widths = _widths(lined)
    if width is not None:
        narrowed = _narrowed(widths, width - 3 * len(widths) - 1)
        folded = [
            ["\n".join(_folded(cell, most)) for cell, most in zip(row, narrowed, strict=True)]
            for row in (head, *rows)
        ]
        lined = [_lines(row) for row in folded]
        widths = _widths(lined)
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    first, *others = ["\n".join(_drawn(line, widths) for line in row) for row in lined]
    return "\n".join([border, first, border, *others, border])


def _widths(lined: Iterable[Sequence[Sequence[str]]]) -> list[int]:
    """The width of each column."""
    columns = zip(*(line for row in lined for line in row), strict=True)
    return [max(len(line) for line in column) for column in columns]


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """The widths, the widest of them reduced until all fit; none becomes less than `_NARROWEST`."""
    found = list(widths)
    while sum(found) > room and (widest := max(found)) > _NARROWEST:
        found[found.index(widest)] = widest - 1
    return found


def _folded(cell: str, most: int) -> Iterator[str]:
    """The lines of a cell, folded behind a space, a comma or a slash where there is one."""
    for line in cell.split("\n"):
        rest = line
        while len(rest) > most:
            at = max(rest.rfind(mark, 0, most) for mark in " ,/") + 1 or most
            yield rest[:at].rstrip()
            rest = rest[at:]
        yield rest


def _lines(row: Sequence[str]) -> list[list[str]]:
    """The lines of a row; each line has one piece per cell."""
    cells = [cell.split("\n") for cell in row]
    height = max(len(cell) for cell in cells)
    return [[cell[i] if i < len(cell) else "" for cell in cells] for i in range(height)]


def _drawn(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f" {piece:<{width}} " for piece, width in zip(line, widths, strict=True))
    return "|" + "|".join(cells) + "|"

"""Writes docs/reference/settings-reference.md: every flag and variable, and what reads it.

    PYTHONPATH=tests .venv/bin/python -m cli.settings_reference

Flags come from the table of options and the defaults of the settings, readers from the code. What
variables mean is said in `environment_variables`; the tests hold the list against the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from cli.environment_variables import BY_LIBRARIES, READ, Variable
from cli.readers import FIELDS, readers
from penstock.cli import tracing
from penstock.cli.flags import GROUPS
from penstock.cli.flags.flag import Flag, last
from penstock.cli.unsupported import UNSUPPORTED_OPTIONS
from penstock.settings.fields import default_value
from penstock.settings.without_effect import OF_GRPCIO, WITHOUT_EFFECT

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings-reference.md"

_MOST_READERS = 4
"""Modules that a row names."""


@cache
def page() -> str:
    """The whole page."""
    sections = [_HEAD]
    for group in GROUPS:
        rows = [_flag_row(flag) for flag in group.flags]
        sections.append(f"### {group.title}\n\n{_table(_FLAG_HEAD, rows)}")
        if group.title == "Tracing":
            sections.append(_TRACE_HEAD + _table(_FLAG_HEAD, _trace_rows()))
    sections += [
        _ENVIRONMENT_HEAD,
        _table(("variable", "value or default", "read by", "effect"), map(_variable_row, READ)),
        "Libraries read these:",
        _table(("variable", "value", "where", "effect"), map(_variable_row, BY_LIBRARIES)),
    ]
    return "\n\n".join(sections) + "\n"


_HEAD = """\
# Flags and environment variables

Every flag of `penstock serve` (and `tritonserver`) and every environment variable, with what reads
it. A flag without a reader is refused by name at the start, or told in the log as one without
effect; a test holds this page against the code. Written by `tests/cli/settings_reference.py`.

Modules lie in `service/penstock/`, those below `backends/` in `backends/penstock_backends/`, and
those below `client/` in `client/penstock_client/`.
"all" stands for a flag that may be repeated. `--help`, and `--version` of `penstock`, are read by
`cli`.

## Flags"""

_TRACE_HEAD = "What `--trace-config` takes, as `MODE,KEY=VALUE` or `KEY=VALUE`:\n\n"

_ENVIRONMENT_HEAD = """\
## Environment variables

Our own code reads these; an empty one counts as not set unless it says otherwise:"""

_FLAG_HEAD = ("flag", "type", "default", "read by", "effect")


def _flag_row(flag: Flag) -> tuple[str, ...]:
    kind = f"`<{flag.argument}>`" if flag.argument else "none"
    if flag.gather is not last:
        kind += ", all"
    default = _shown(default_value(flag.field)) if flag.field else ""
    return f"`--{flag.name}`", kind, default, _read_by(flag), _plain(_effect(flag))


def _effect(flag: Flag) -> str:
    for row in WITHOUT_EFFECT:
        if row.flag == flag.name:
            return f"No effect, because {row.reason}. In Triton: {flag.help}"
    if flag.name == OF_GRPCIO.flag:
        return f"{flag.help} No effect without grpcio, because {OF_GRPCIO.reason}."
    for refused in UNSUPPORTED_OPTIONS:
        if refused.flag == flag.name:
            return f"Refused at the start, not built yet: {refused.feature}. {flag.help}"
    return flag.help


_IN_CLI = {
    "name": "repository.files",
    "task": "repository.files",
    "device": "repository.files",
    "disable-auto-complete-config": "repository.auto_complete_config",
    "strict-model-config": "repository.auto_complete_config",
    "trace-file": "trace.file",
    "trace-level": "trace.levels",
    "trace-rate": "trace.rate",
    "trace-count": "trace.count",
    "trace-log-frequency": "trace.log_frequency",
}
"""Fields of flags whose values the command line works out together with others."""


def _read_by(flag: Flag) -> str:
    if flag.name == "trace-config":
        return "see below"
    field = flag.field or _IN_CLI[flag.name]
    return _readers(field)


def _readers(field: str) -> str:
    paths = [path for path in FIELDS if path == field or path.startswith(f"{field}.")]
    if not paths and is_dataclass(default_value(field)):
        raise AssertionError(field)
    found = sorted({place for path in paths for place in readers(path)})
    if not found:
        return "-"
    named = ", ".join(f"`{place}`" for place in found[:_MOST_READERS])
    more = len(found) - _MOST_READERS
    return f"{named} and {more} more" if more > 0 else named


def _trace_rows() -> Iterator[tuple[str, ...]]:
    for (mode, key), (field, _) in tracing._PARSERS.items():
        name = f"{mode},{key}" if mode else key
        path = f"trace.{field}"
        default = _shown(default_value(path))
        yield f"`{name}`", "", default, _readers(path), _TRACE_EFFECTS[mode, key]


_TRACE_EFFECTS = {
    ("", "rate"): "One request in so many is traced.",
    ("", "level"): "What is recorded: OFF, TIMESTAMPS or TENSORS; levels add up.",
    ("", "count"): "Traces left to make; -1 for no limit.",
    ("", "mode"): "`triton` writes files, `opentelemetry` exports spans.",
    ("triton", "file"): "The trace file.",
    ("triton", "log-frequency"): "Traces in one file; 0 for all.",
    ("opentelemetry", "url"): "The collector.",
    ("opentelemetry", "resource"): "Attributes of the resource, as `key=value`; all.",
    ("opentelemetry", "bsp_max_queue_size"): "Spans that may wait for the exporter.",
    ("opentelemetry", "bsp_schedule_delay"): "Milliseconds between two exports.",
    ("opentelemetry", "bsp_max_export_batch_size"): "Spans of one export.",
    ("opentelemetry", "protocol"): "How the collector is spoken to.",
    ("opentelemetry", "sampler"): "OpenTelemetry's sampler; empty for Triton's rate and count.",
    ("opentelemetry", "ratio"): "Share of traces that a sampler by ratio takes.",
    ("opentelemetry", "slow_threshold_ms"): "Slower requests are exported although not sampled.",
    ("opentelemetry", "always_on_error"): "Failed requests are exported although not sampled.",
}


def _variable_row(variable: Variable) -> tuple[str, ...]:
    places = ", ".join(f"`{place}`" for place in variable.readers)
    return _names(variable.name), variable.value, places, variable.effect


def _names(names: str) -> str:
    plain, bracket, rest = names.partition(" (")
    return ", ".join(f"`{name}`" for name in plain.split(", ")) + bracket + rest


def _shown(value: Any) -> str:
    """A default, as one would write it on the command line."""
    if is_dataclass(value) or value is None or value in ("", (), {}, frozenset()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, Mapping | tuple | frozenset):
        return f"`{', '.join(map(str, value))}`"
    return f"`{value}`"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page())

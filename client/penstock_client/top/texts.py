"""Numbers as short text; `-` stands for an unknown value."""

from __future__ import annotations

UNKNOWN = "-"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def count(value: float | None) -> str:
    """A number with about three digits, larger ones whole: `0.25`, `12.3`, `1,234`."""
    if value is None or value != value:
        return UNKNOWN
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    return UNKNOWN if seconds is None else count(seconds * 1000)


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.0f}%"


def size(bytes_: float | None) -> str:
    """A size in the largest unit of which there is one."""
    if bytes_ is None:
        return UNKNOWN
    unit = 0
    while bytes_ >= 1024 and unit < len(_UNITS) - 1:
        bytes_ /= 1024
        unit += 1
    return f"{bytes_:.0f} {_UNITS[unit]}" if unit < 3 else f"{bytes_:.1f} {_UNITS[unit]}"


def printable(text: str) -> str:
    """The text without what moves a terminal's cursor: names and reasons come from the server."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )

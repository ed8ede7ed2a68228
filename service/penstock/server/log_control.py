"""What the facade needs of the log: its settings, and how to change them (X-15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.core.errors import InvalidRequestError, UnsupportedError

LogValues = Mapping[str, bool | int | str]
"""Settings by the names of the protocol: `log_info`, `log_verbose_level` and so on."""

FORMATS = ("default", "ISO8601")


class LogControl(Protocol):
    """The log of this server; handed down by whoever owns it."""

    def current(self) -> LogValues:
        """All settings."""

    def change(self, values: LogValues) -> None:
        """Log as these say from now on; names that are not there stay as they are."""


def checked(values: LogValues) -> LogValues:
    """`values` if they can be set; types are the frontend's to check.

    A level of detail too high for a signed integer is one below zero, which is none.
    """
    if "log_file" in values:
        raise UnsupportedError("log file location can not be updated through network protocol")
    chosen = values.get("log_format", FORMATS[0])
    if chosen not in FORMATS:
        raise InvalidRequestError(f"invalid argument for log_format, got: {chosen}")
    level = values.get("log_verbose_level", 0)
    too_high = isinstance(level, int) and level >= 1 << 31
    return {**values, "log_verbose_level": 0} if too_high else values

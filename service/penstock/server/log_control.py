"""`LogControl`: the log settings of the server, which clients read and change (X-15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.core.errors import InvalidRequestError, UnsupportedError, shortened

LogValues = Mapping[str, bool | int | str]
"""Log settings by the protocol's names: `log_info`, `log_verbose_level` and so on."""

FORMATS = ("default", "ISO8601", "json")


class LogControl(Protocol):
    """The log settings of this server; implemented by its owner."""

    def current(self) -> LogValues:
        """All settings in force."""

    def change(self, values: LogValues) -> None:
        """Change the settings in `values`; others stay as they are."""


def checked(values: LogValues) -> LogValues:
    """`values`, validated; the frontend has checked the types.

    A verbose level beyond a signed 32-bit integer turns verbose logging off, as in Triton.
    """
    if "log_file" in values:
        raise UnsupportedError("log file location can not be updated through network protocol")
    chosen = values.get("log_format", FORMATS[0])
    if chosen not in FORMATS:
        raise InvalidRequestError(f"invalid argument for log_format, got: {shortened(str(chosen))}")
    level = values.get("log_verbose_level", 0)
    too_high = isinstance(level, int) and level >= 1 << 31
    return {**values, "log_verbose_level": 0} if too_high else values

"""A log whose settings are kept and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class KeptLog:
    """`LogControl` that only keeps the settings."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {
            "log_file": "",
            "log_info": True,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 0,
            "log_format": "default",
        }

    def current(self) -> dict[str, Any]:
        return self.values

    def change(self, values: Mapping[str, Any]) -> None:
        self.values |= values

"""Headers of a call that become parameters of its requests (contract GT-17, H-30)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from penstock.core.errors import InvalidRequestError

logger = logging.getLogger(__name__)

_RESERVED = frozenset(
    {
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    }
)
_RESERVED_PREFIX = "triton_"


class HeaderForward:
    """Chooses the headers whose names a pattern matches anywhere, whatever their case."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern, re.IGNORECASE)

    def select(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Names and values that go to the model; of equal names the last counts.

        Raises `InvalidRequestError` for a name that would be one of the server's own (GT-18).
        """
        chosen: dict[str, str] = {}
        for name, value in headers:
            if not self._pattern.search(name):
                continue
            if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIX):
                raise InvalidRequestError(
                    f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
                )
            chosen[name] = value
        return chosen


def header_forward(pattern: str) -> HeaderForward | None:
    """What `pattern` chooses; nothing for an empty one, and for one that cannot be understood."""
    try:
        return HeaderForward(pattern) if pattern else None
    except re.error as error:
        logger.error("no header matches the pattern '%s', which is wrong: %s", pattern, error)
        return None

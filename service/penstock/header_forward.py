"""Forwarding of request headers to models as parameters (contract GT-17, H-30)."""

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
    """A filter for headers whose names match a pattern anywhere, in any case.

    Headers `secret` are left out: no model gets the secrets of restrictions.
    """

    def __init__(self, pattern: str, secret: Iterable[str] = ()) -> None:
        self._pattern = re.compile(pattern, re.IGNORECASE)
        self._secret = frozenset(name.lower() for name in secret)

    def select(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The matching headers by name; of equal names the last wins.

        Raises `InvalidRequestError` for a name that is reserved by the server (GT-18).
        """
        chosen: dict[str, str] = {}
        for name, value in headers:
            if not self._pattern.search(name) or name.lower() in self._secret:
                continue
            if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIX):
                raise InvalidRequestError(
                    f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
                )
            chosen[name] = value
        return chosen


def header_forward(pattern: str, secret: Iterable[str] = ()) -> HeaderForward | None:
    """The filter for `pattern`, less `secret`; `None` if it is empty or no regular expression."""
    try:
        return HeaderForward(pattern, secret) if pattern else None
    except re.error as error:
        logger.error("no header matches the pattern '%s': it is not valid: %s", pattern, error)
        return None

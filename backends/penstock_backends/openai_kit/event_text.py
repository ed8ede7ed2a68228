"""Text of server-sent events."""

from __future__ import annotations

import re
from typing import Final

_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")


def event_bytes(text: str) -> bytes:
    """Events as bytes, with all that some readers take for the end of a line escaped as in JSON.

    Such readers split decoded text as Python's `splitlines` does.
    """
    if not text.isascii() and _LINE_ENDS.search(text) is not None:
        text = _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode()

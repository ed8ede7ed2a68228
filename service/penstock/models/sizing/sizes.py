"""Sizes of memory as text: `48GiB`, `80GB`, or bytes."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")


def parsed_size(text: str) -> int | None:
    """The bytes that a text says, above 0; `None` for one that is no size."""
    found = _SIZE.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS:
        return None
    size = float(found[1]) * _UNITS[found[2].lower()] if "." in found[1] else (
        int(found[1]) * _UNITS[found[2].lower()]
    )  # fmt: skip
    return int(size) if 0 < size < 1 << 63 else None


def shown_size(size: int) -> str:
    """Bytes for people: three digits and a binary unit."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= _UNITS[unit.lower()]:
            number = size / _UNITS[unit.lower()]
            return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"
    return f"{size} B"

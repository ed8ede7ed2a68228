"""What a requirements file asks for, as a text that differs where the outcome may."""

from __future__ import annotations

import re
from pathlib import Path

_FURTHER = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)(?:\s+|=)(\S+)")
_OF_ITS_PLACE = re.compile(r"\s*(?:-e\b|--editable\b)|(?![^#]*://)[^#]*(?:/|\.whl\b)")


def meaning(requirements: Path) -> str:
    """Its lines, those of the files that it names, and its place if that matters to one of them."""
    texts: list[str] = []
    _collect(requirements, texts, set())
    return "\n".join(texts)


def _collect(path: Path, texts: list[str], seen: set[Path]) -> None:
    path = path.resolve()
    if path in seen or not path.is_file():  # of a missing one pip tells
        return
    seen.add(path)
    text = path.read_text(errors="replace")
    texts.append(text)
    for line in text.splitlines():
        if further := _FURTHER.match(line):
            _collect(path.parent / further[1], texts, seen)
        elif _OF_ITS_PLACE.match(line):
            texts.append(str(path.parent))

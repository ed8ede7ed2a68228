"""Programs and command lines for clients, as they stand in README and docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
_FENCED = re.compile(r"```(?:sh|console|bash)\n(.*?)```", re.DOTALL)
_INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


def programs(page: Path) -> Iterator[str]:
    """The blocks of Python, and those that are only indented."""
    text = page.read_text()
    yield from _PYTHON.findall(text)
    for block in _INDENTED.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if re.match(r"    (?:from|import) ", block):
            yield re.sub(r"^    ", "", block, flags=re.MULTILINE)


def lines(page: Path, command: str) -> Iterator[str]:
    """The lines that begin with a command, each as one line."""
    found = re.compile(rf"^\s*(?:\$ )?({command} (?:.*\\\n)*.*)$", re.MULTILINE)
    text = page.read_text()
    for block in (*_FENCED.findall(text), *_INDENTED.findall(_FENCED.sub("", text))):
        yield from (line.replace("\\\n", " ") for line in found.findall(block))

"""Lines of prose in Markdown are short enough for a diff to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = [*sorted(_ROOT.glob("*.md")), *sorted((_ROOT / "docs").rglob("*.md"))]
_LONGEST = 100

_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def _is_prose(line: str) -> bool:
    """Neither of a table, nor of an indented block, nor one word, such as a URL."""
    return not line.lstrip().startswith("|") and not line.startswith("    ") and " " in line.strip()


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_lines_of_prose_are_short(page: Path) -> None:
    lines = filter(_is_prose, _FENCED.sub("", page.read_text("utf-8")).splitlines())
    assert [line for line in lines if len(line) > _LONGEST] == []

"""Pages are found from the index, and links between them lead somewhere."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_INDEX = _DOCS / "README.md"
_FOLDERS = ("docs", "client", "clients", "deploy", "examples", "loadtest")
_PAGES = [
    *sorted(_ROOT.glob("*.md")),
    *sorted(
        page
        for page in chain.from_iterable((_ROOT / folder).rglob("*.md") for folder in _FOLDERS)
        if not {"node_modules", "demo"} & set(page.parts)  # others' pages, and generated ones
    ),
]

_BLOCK = re.compile(r"^```.*?^```|^    .*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@cache
def _prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text("utf-8"))


def _links(page: Path) -> list[str]:
    links = [link for link in _LINK.findall(_prose(page)) if "://" not in link]
    return [link for link in links if not link.startswith("mailto:")]


@cache
def _anchors(page: Path) -> frozenset[str]:
    """The names that GitHub gives to the headings of a page."""
    found: list[str] = []
    for heading in _HEADING.findall(_prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return frozenset(found)


def _leads_nowhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    aim = (page.parent / path).resolve() if path else page
    named = anchor and aim.suffix == ".md"
    return not aim.exists() or bool(named and anchor not in _anchors(aim))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_links_of_a_page_lead_to_a_file_and_a_heading(page: Path) -> None:
    assert [link for link in _links(page) if _leads_nowhere(page, link)] == []


def test_the_index_links_every_page() -> None:
    linked = {(_DOCS / link).resolve() for link in _links(_INDEX)}
    assert set(_DOCS.rglob("*.md")) - {_INDEX} - linked == set()


def test_the_readme_links_the_index() -> None:
    assert "docs/README.md" in _links(_ROOT / "README.md")

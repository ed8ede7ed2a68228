"""The places in the code that refuse a model, and which of them are reached while tests run."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

_ROOT = Path(__file__).parents[3]
_CODE = (
    "service/penstock/core/config",
    "service/penstock/core/placement.py",
    "service/penstock/models/config",
    "service/penstock/models/loading",
    "service/penstock/models/remote",
    "service/penstock/models/repository",
    "service/penstock/models/sizing",
    "service/penstock/scheduling/batching",
    "service/penstock/scheduling/rate_limiter.py",
    "service/penstock/scheduling/tokens/limits.py",
    "backends/penstock_backends",
)
_ERRORS = {
    "BackendNotInstalledError",
    "ConfigError",
    "ModelLoadError",
    "PbtxtError",
    "UnavailableError",
    "UnsupportedError",
}
_RULES = "/config/validation/"
"""Files whose functions yield the texts of refusals."""


class Site(NamedTuple):
    """A statement that refuses: its file from the packages on, its function, its lines."""

    file: str
    function: str
    lines: range

    def __str__(self) -> str:
        return f"{self.file}:{self.lines.start} {self.function}"


@cache
def sites() -> tuple[Site, ...]:
    """Every statement that raises one of the errors of loads, or yields the text of one."""
    return tuple(site for path in _files() for site in _sites_of(path))


def _files() -> Iterator[Path]:
    for name in _CODE:
        path = _ROOT / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else (path,)


def _sites_of(path: Path) -> Iterator[Site]:
    name = _shown(str(path))
    yields = _RULES in str(path)

    def walk(node: ast.AST, function: str) -> Iterator[Site]:
        for child in ast.iter_child_nodes(node):
            inside = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}" if function else child.name
            elif _refuses(child, yields=yields):
                assert isinstance(child, ast.stmt | ast.expr)
                yield Site(name, function, range(child.lineno, (child.end_lineno or 0) + 1))
            yield from walk(child, inside)

    yield from walk(ast.parse(path.read_text("utf-8")), "")


def _refuses(node: ast.AST, *, yields: bool) -> bool:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        made = node.exc.func
        return isinstance(made, ast.Name) and made.id in _ERRORS
    text = isinstance(node, ast.Yield) and isinstance(node.value, ast.Constant | ast.JoinedStr)
    return yields and text


def _shown(file: str) -> str:
    return file.partition("/service/")[2] or file.partition("/backends/")[2]


@contextmanager
def lines_reached() -> Iterator[set[tuple[str, int]]]:
    """File and line of what runs meanwhile, on this thread and new ones, in files with sites."""
    found: set[tuple[str, int]] = set()
    watched = {site.file for site in sites()}
    known: dict[str, str] = {}

    def local(frame: FrameType, event: str, _: Any) -> Any:
        found.add((known[frame.f_code.co_filename], frame.f_lineno))
        return local

    def begin(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in known:
            known[file] = _shown(file)
        return local if known[file] in watched else None

    before = sys.gettrace()
    sys.settrace(begin)
    threading.settrace(begin)
    try:
        yield found
    finally:
        sys.settrace(before)
        threading.settrace(before)

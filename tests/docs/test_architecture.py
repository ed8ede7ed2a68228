"""The map of the code, `docs/architecture.md`, names rooms, files and functions that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "architecture.md").read_text("utf-8")
_SERVICE = _ROOT / "service" / "penstock"
_STEP = re.compile(r"^\| `(?P<file>[\w/]+\.py)` \| (?P<functions>`[^|]+`) \|", re.MULTILINE)


def _path(name: str) -> Path:
    for package in ("backends", "client"):
        if name.startswith(f"{package}/"):
            return _ROOT / package / f"penstock_{name}"
    return _SERVICE / name


def _steps() -> Iterator[tuple[str, str]]:
    for step in _STEP.finditer(_PAGE):
        for function in re.findall(r"`([\w.]+)`", step["functions"]):
            yield step["file"], function


def _defined(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            inner = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {f"{node.name}.{method.name}" for method in inner}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


def test_three_paths_are_walked() -> None:
    assert len(list(_steps())) > 30


@pytest.mark.parametrize(("file", "function"), list(_steps()))
def test_each_step_of_a_path_exists(file: str, function: str) -> None:
    assert function in _defined(_path(file))


def test_each_room_of_the_server_and_of_the_client_package_is_on_the_map() -> None:
    rooms = {init.parent.name for init in _SERVICE.glob("*/__init__.py")} - {"demo"}
    clients = (_ROOT / "client" / "penstock_client").glob("*/__init__.py")
    rooms |= {f"client/{init.parent.name}" for init in clients}
    assert [room for room in sorted(rooms) if not re.search(rf"`{room}[`/]", _PAGE)] == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+\.py)`", _PAGE))))
def test_each_file_that_is_named_exists(path: str) -> None:
    assert _path(path).exists()

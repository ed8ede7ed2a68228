"""Print the tests to run for a change: the folder of tests of each changed module, and, in its room
and the rooms that import it, the test files whose imports lead to it.

    python tests/touched_rooms.py

In a tree without changes, those of the last commit count. What only gates read brings no test.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "penstock": "service/penstock",
    "penstock_backends": "backends/penstock_backends",
    "penstock_client": "client/penstock_client",
}
_TESTS = {
    "penstock": ROOT / "tests",
    "penstock_backends": ROOT / "tests" / "backends",
    "penstock_client": ROOT / "tests",
}
_OTHERS = {
    "clients": ("clients",),
    "deploy": ("deployment", "observability"),
    "examples": ("demo",),
    "loadtest": ("load_tools",),
    "proto": ("protocol",),
}
"""Folders of the repository beside the packages -> their tests."""
_SHARED = ("conftest.py", "fakes", "harness")
"""Modules that all tests use."""
_COMMAND_LINE = "penstock.cli"
_COMMAND = "penstock.__main__"
"""The module behind the word "penstock" in a test, which starts the command."""


def changed_files(root: Path = ROOT) -> list[str]:
    """Files that differ from the last commit, new ones among them, or those of that commit."""
    tree = _git(root, "diff", "--name-only", "HEAD")
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return tree + new or _git(root, "diff", "--name-only", "HEAD~1", "HEAD")


def paths_of(files: Iterable[str], graph: grimp.ImportGraph) -> set[str]:
    """Paths of tests below the root, files and folders; `tests` alone where all are touched."""
    found = {path for file in files for path in _tests_of(PurePosixPath(file), graph)}
    return {"tests"} if "tests" in found else {path for path in found if (ROOT / path).exists()}


def _tests_of(file: PurePosixPath, graph: grimp.ImportGraph) -> Iterator[str]:
    top, *below = file.parts
    if top == "tests" and below:
        yield (
            "tests"
            if below[0] in _SHARED
            else "/".join(file.parts[:-1] if below[1:] else file.parts)
        )
    for folder in _OTHERS.get(top, ()):
        yield f"tests/{folder}"
    for package, source in PACKAGES.items():
        if file.suffix == ".py" and file.is_relative_to(source):
            yield from _of_module(package, file.relative_to(source), graph)


def _of_module(package: str, file: PurePosixPath, graph: grimp.ImportGraph) -> Iterator[str]:
    """The tests of the module's folder, and those of its room and rooms above that reach it."""
    module = ".".join((package, *file.with_suffix("").parts)).removesuffix(".__init__")
    place = _TESTS[package]
    inner = (place / folder for folder in (file.parent, *file.parent.parents) if folder.name)
    own = next((folder for folder in inner if folder.is_dir()), place / f"test_{file.name}")
    yield str(own.relative_to(ROOT))
    above = {module}
    if module in graph.modules:
        above |= graph.find_downstream_modules(module)
    rooms = {_room(one) for one in above}
    if package == "penstock_client":  # whose commands are found by entry points
        above |= {_COMMAND, _COMMAND_LINE}
    for test in {test for room in rooms for test in _files(room)}:
        if own not in test.parents and _reached(_name(test)) & above:
            yield str(test.relative_to(ROOT))


def _room(module: str) -> Path:
    """The place of the tests of a module's room."""
    package, _, below = module.partition(".")
    return _TESTS[package] / below.partition(".")[0]


def _files(room: Path) -> Iterator[Path]:
    """The tests of a room, which may be one file, or none."""
    file = room.with_name(f"test_{room.name}.py")
    if room.is_dir():
        yield from room.rglob("test_*.py")
    elif file.exists():
        yield file


@cache
def _modules() -> dict[str, Path]:
    """The modules below `tests` by the names that they import each other by."""
    return {_name(file): file for file in (ROOT / "tests").rglob("*.py")}


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT / "tests").with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def _reached(test: str) -> set[str]:
    """Modules of the product that a test imports, its fixtures, or the modules of tests it uses."""
    folders = test.split(".")[:-1]
    # Without the fixtures of all tests, which reach everything.
    fixtures = [".".join((*folders[:n], "conftest")) for n in range(1, len(folders) + 1)]
    to_read = [name for name in (test, *fixtures) if name in _modules()]
    read: set[str] = set()
    while to_read:
        name = to_read.pop()
        if name not in read:
            read.add(name)
            to_read += [one for one in _imported(name) if one in _modules()]
    return {one for name in read for one in _imported(name) if one.startswith("penstock")}


@cache
def _imported(test: str) -> frozenset[str]:
    """Modules, and names in them, that a module of tests imports; what it runs counts, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_modules()[test].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "fakes" and test != "fakes":
            found.update(_fakes()[alias.name] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and node.value == "penstock":
            found.add(_COMMAND)
    return frozenset(found)


@cache
def _fakes() -> dict[str, str]:
    """Names of the package `fakes` -> its modules: nearly all tests import one of them."""
    tree = ast.parse(_modules()["fakes"].read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def _git(root: Path, *arguments: str) -> list[str]:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    graph = grimp.build_graph(*PACKAGES)
    print(*sorted(paths_of(changed_files(), graph)))


if __name__ == "__main__":
    main()

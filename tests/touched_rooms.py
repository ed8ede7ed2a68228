"""Print the folders of tests to run for what the working tree changes: those of the rooms that it
touches, and of the rooms above, whose modules import what is changed, directly or through others.

    python tests/touched_rooms.py

In a tree without changes, those of the last commit count. What only gates read brings no folder.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = {"penstock": "service/penstock", "penstock_backends": "backends/penstock_backends"}
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


def changed_files(root: Path = ROOT) -> list[str]:
    """Files that differ from the last commit, new ones among them, or those of that commit."""
    tree = _git(root, "diff", "--name-only", "HEAD")
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return tree + new or _git(root, "diff", "--name-only", "HEAD~1", "HEAD")


def folders_of(files: Iterable[str], graph: grimp.ImportGraph) -> set[str]:
    """Paths of tests below the root; `tests` alone where all are touched."""
    found = {folder for file in files for folder in _tests_of(PurePosixPath(file), graph)}
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
            yield from _above(package, file.relative_to(source), graph)


def _above(package: str, file: PurePosixPath, graph: grimp.ImportGraph) -> Iterator[str]:
    parts = file.with_suffix("").parts
    module = ".".join((package, *parts)).removesuffix(".__init__")
    importers = graph.find_downstream_modules(module) if module in graph.modules else set()
    for room in {module, *importers}:
        top, _, name = room.partition(".")
        name = name.partition(".")[0]
        if top == "penstock_backends":
            yield f"tests/backends/{name}"
        else:
            yield from (f"tests/{name}", f"tests/test_{name}.py")


def _git(root: Path, *arguments: str) -> list[str]:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    graph = grimp.build_graph(*PACKAGES)
    print(*sorted(folders_of(changed_files(), graph)))


if __name__ == "__main__":
    main()

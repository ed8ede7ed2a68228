"""Small modules with one user stand in that user: the number of others may only become less."""

from __future__ import annotations

from pathlib import Path

import grimp

_ROOT = Path(__file__).parents[2]
_FOLDERS = {"penstock": "service", "penstock_backends": "backends", "penstock_client": "client"}
_SMALL = 60
"""Lines of a module that is another's part, rather than a place of its own."""

_MOST = 8
"""Small modules with one importer in their own folder. Merge one to lower it."""


def _file(module: str) -> Path:
    return _ROOT / _FOLDERS[module.partition(".")[0]] / f"{module.replace('.', '/')}.py"


def _doors_to_nowhere() -> list[str]:
    graph = grimp.build_graph(*_FOLDERS, exclude_type_checking_imports=False)
    found = []
    for module in sorted(graph.modules):
        importers = graph.find_modules_that_directly_import(module)
        beside = {importer.rpartition(".")[0] for importer in importers}
        if len(importers) == 1 and beside == {module.rpartition(".")[0]} and _file(module).exists():
            lines = len(_file(module).read_text("utf-8").splitlines())
            found += [f"{module} -> {min(importers)}"] * (lines <= _SMALL)
    return found


def test_small_modules_with_one_user_become_fewer() -> None:
    found = _doors_to_nowhere()
    assert len(found) <= _MOST, "\n".join(found)

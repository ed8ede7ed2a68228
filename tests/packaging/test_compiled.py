"""The compiled wheel: what is compiled is what the list says, and what it does elsewhere.

`make test-compiled` runs this with PENSTOCK_TEST_COMPILED=1, where a wheel that was compiled is
installed. Everywhere else the package is pure Python, which is asserted just as well.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock
import penstock_backends
import penstock_client

ROOT = Path(__file__).parents[2]
PACKAGE = Path(penstock.__file__).parent
PACKAGES = {
    package.__name__: Path(package.__path__[0])
    for package in (penstock, penstock_backends, penstock_client)
}
PROJECTS = (".", "client")
"""Folders of the projects whose wheels may be compiled."""
_WAITS = (ast.Await, ast.AsyncFor, ast.Yield, ast.YieldFrom)
COMPILED = os.environ.get("PENSTOCK_TEST_COMPILED") == "1"


def _hook() -> ModuleType:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _settings(project: str) -> dict[str, Any]:
    """What the hook is told by a project, which lies in this folder."""
    read = tomllib.loads((ROOT / project / "pyproject.toml").read_text())
    settings = read["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert isinstance(settings, dict)
    return settings


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages side by side, as they are compiled."""
    folder = _hook().side_by_side(tmp_path_factory.mktemp("sources"))
    assert isinstance(folder, Path)
    return folder


@pytest.fixture(scope="module")
def listed(sources: Path) -> list[Path]:
    """The files that are compiled, as they lie in site-packages."""
    return [
        Path(file)
        for settings in map(_settings, PROJECTS)
        for file in _hook().selected(sources, settings["compiled"], settings["interpreted"])
    ]


def _installed(file: Path) -> Path:
    return PACKAGES[file.parts[0]].parent / file


def _waits_in_handlers(file: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.AsyncWith):
            yield node.lineno
        elif isinstance(node, ast.Try):
            handlers = [*node.finalbody, *(line for one in node.handlers for line in one.body)]
            inside = (inner for line in handlers for inner in ast.walk(line))
            yield from (inner.lineno for inner in inside if isinstance(inner, _WAITS))


def _calls_in_slices(file: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Slice):
            calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
            yield from (call.lineno for call in calls if ast.unparse(call.func) != "len")


def _gathers_of_some(file: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(file.read_text())):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "asyncio.gather"
            and not all(isinstance(each, ast.Starred) for each in node.args)
        ):
            yield node.lineno


def _is_extension(module: str) -> bool:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def test_what_is_listed_is_compiled_in_a_compiled_wheel_and_nowhere_else(
    listed: list[Path],
) -> None:
    modules = [".".join(file.with_suffix("").parts) for file in listed]
    assert len(modules) > 100
    assert [module for module in modules if _is_extension(module) != COMPILED] == []


def test_nothing_compiled_waits_while_it_handles_an_exception(
    sources: Path, listed: list[Path]
) -> None:
    """mypyc 2.4 loses or confuses that exception, and may break the memory."""
    files = [sources / file for file in listed]
    assert [f"{file}:{line}" for file in files for line in _waits_in_handlers(file)] == []


def test_no_bound_of_a_slice_is_a_call_in_what_is_compiled(
    sources: Path, listed: list[Path]
) -> None:
    """mypyc 2.4 makes the call twice where a `memoryview` or another object is sliced."""
    files = [sources / file for file in listed]
    assert [f"{file}:{line}" for file in files for line in _calls_in_slices(file)] == []


def test_gather_takes_a_sequence_in_what_is_compiled(sources: Path, listed: list[Path]) -> None:
    """Of arguments one by one it has the type of a tuple, which mypyc checks; it is a list."""
    files = [sources / file for file in listed]
    assert [f"{file}:{line}" for file in files for line in _gathers_of_some(file)] == []


def test_sources_lie_beside_what_was_made_of_them(listed: list[Path]) -> None:
    assert [file for file in listed if not _installed(file).exists()] == []


def test_what_the_list_says_stays_interpreted() -> None:
    files = [
        file
        for settings in map(_settings, PROJECTS)
        for pattern in settings["interpreted"]
        for folder in PACKAGES.values()
        for file in folder.parent.glob(pattern)
    ]
    assert files
    assert [file for file in files if list(file.parent.glob(f"{file.stem}.*.so"))] == []


@pytest.mark.parametrize(("asked", "version"), [("0", "standard"), ("1", "editable")])
def test_only_a_wheel_that_is_asked_for_is_compiled(
    asked: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_COMPILE", asked)
    build_data: dict[str, Any] = {}
    hook = _hook().CompiledModules(str(ROOT), _settings("."), None, None, "", "wheel")
    hook.initialize(version, build_data)
    assert build_data == {}


def test_a_wheel_is_not_compiled_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_COMPILE", "1")
    monkeypatch.setenv("CC", "no-such-compiler -pthread")
    hook = _hook().CompiledModules(str(ROOT), _settings("."), None, None, "", "wheel")
    with pytest.raises(SystemExit, match="needs a C compiler, and there is no no-such-compiler"):
        hook.initialize("standard", {})


def test_a_list_that_has_aged_is_refused(sources: Path) -> None:
    with pytest.raises(ValueError, match=r"'penstock/gone\.py' in pyproject"):
        _hook().selected(sources, ["penstock/core/*.py"], {"penstock/gone.py": "was slow"})


def test_another_python_takes_the_sources(tmp_path: Path, listed: list[Path]) -> None:
    """A model process may run on another version, which must not stumble over extensions."""
    package = tmp_path / "penstock"
    shutil.copytree(
        PACKAGE, package, ignore=shutil.ignore_patterns("assets", "*.so", "__pycache__")
    )
    for file in listed:
        if file.parts[0] == package.name:
            (tmp_path / file).with_suffix(".cpython-399-x86_64-linux-gnu.so").touch()
    assert _told_by_a_model_process(package) == ["flow_control.py", "link.py"]


def test_a_model_process_takes_what_is_compiled_for_its_python() -> None:
    suffix = EXTENSION_SUFFIXES[0] if COMPILED else ".py"
    assert _told_by_a_model_process(PACKAGE) == [f"flow_control{suffix}", f"link{suffix}"]


def test_an_object_is_kept_for_its_source_and_what_it_is_compiled_with(tmp_path: Path) -> None:
    source, made, taken = (tmp_path / name for name in ("one.c", "one.o", "taken.o"))
    source.write_text("int one;")
    made.write_bytes(b"object")
    cache, other = (_hook().ObjectCache(tmp_path / "kept", flags) for flags in (b"-O2", b"-O1"))
    assert not cache.fetch(str(source), taken)
    cache.keep(str(source), made)
    assert not other.fetch(str(source), taken)
    assert cache.fetch(str(source), taken)
    assert taken.read_bytes() == b"object"
    source.write_text("int two;")
    assert not cache.fetch(str(source), taken)


def test_objects_that_were_not_used_for_longest_are_deleted_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "older", "oldest")):
        (tmp_path / name).write_bytes(b"1234")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    _hook().ObjectCache(tmp_path).trim(8)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new", "older"]


def _told_by_a_model_process(package: Path) -> list[str]:
    """The names of the files that two modules come from, when the package is offered to it."""
    code = (
        "import runpy, sys; from pathlib import Path;"
        "path = sys.argv[1];"
        "offer = runpy.run_path(path)['offer'];"
        "offer(Path(path).parents[2]);"
        "import penstock.core.flow_control as one, penstock.hosting.link.link as two;"
        "print(Path(one.__file__).name, Path(two.__file__).name)"
    )
    bootstrap = package / "hosting" / "worker" / "bootstrap.py"
    done = subprocess.run(
        [sys.executable, "-c", code, str(bootstrap)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()

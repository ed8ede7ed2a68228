"""The wires of a copy of the code: reads of fields and arguments, told or cut.

`tree.py` puts this module into the copy as `penstock._wiring`, which every process of its tests
imports first. `PENSTOCK_WIRING_CUT` names the wire that is cut, and `PENSTOCK_WIRING_TOLD` is the
folder that takes what was read; model processes get both variables, too.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PARTS = ("penstock.core.config", "penstock.settings", "penstock.metrics.measurement")
"""Packages whose dataclasses have wires; besides those of the in-process API."""
IN_PROCESS = "penstock.in_process"
CHECKS = (
    "penstock.cli",
    "penstock.core.config.json_form",
    "penstock.core.config.schema",
    "penstock.models.config",
    "penstock.settings.exposures",
    "penstock.settings.fields",
    "penstock.settings.rules",
    "penstock.settings.secure",
    "penstock.settings.without_effect",
)
_CHECKS_IN_CLASSES = ("__post_init__", "_endpoints")
"""Modules, and methods of the dataclasses, that read fields to check, to print or to complete them.

They are never cut: a refusal is no use of a value, and a configuration that is printed would notice
everything.
"""

_TOLD = os.environ.get("PENSTOCK_WIRING_TOLD", "")
_CHILD = "pytest" not in sys.modules
_test = ""
_of_file = _CHILD
"""Whether what is read belongs to all tests of the file: in a server's process, or in a fixture."""
_seen: set[tuple[str, ...]] = set()
_cut: dict[str, str] = {}
_files: dict[int, int] = {}


def begin(test: str) -> None:
    """Name the test that runs, also to the processes that it starts."""
    global _test
    _test = test
    if _TOLD:
        Path(_TOLD, "test").write_text(test)


def cut(wire: str, reader: str, how: str) -> None:
    """Cut a wire for one reader from here on, or none where `wire` is empty."""
    _cut.clear()
    if wire:
        _cut.update(wire=wire, reader=reader, how=how)


def tell(kind: str, *words: str) -> None:
    """Write one line about this process, once for each test that it works for."""
    test = "" if _CHILD else _test
    if not _TOLD or (kind, test, *words) in _seen:
        return
    _seen.add((kind, test, *words))
    if _CHILD:
        test = Path(_TOLD, "test").read_text()
    line = json.dumps([kind, *words, test, _of_file]) + "\n"
    if os.getpid() not in _files:  # a fork writes its own file
        file = Path(_TOLD, f"{os.getpid()}.jsonl")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        _files[os.getpid()] = os.open(file, flags, 0o600)
    os.write(_files[os.getpid()], line.encode())


def door(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function behind which a server answers: what its test reads counts."""

    @functools.wraps(function)
    def opened(*given: Any, **named: Any) -> Any:
        tell("door")
        return function(*given, **named)

    return opened


# -- fields ------------------------------------------------------------------------------------


class Wire:
    """A field of a dataclass, as a descriptor in front of where its values are."""

    def __init__(self, cls: type[Any], field: dataclasses.Field[Any]) -> None:
        self.name, self.default = field.name, _default(field)
        self.wire = f"{_short(cls)}.{field.name}"
        self._slot = cls.__dict__.get(field.name) if "__slots__" in cls.__dict__ else None

    def __get__(self, part: Any, cls: type[Any]) -> Any:
        if part is None:
            return self._slot or self.default
        value = self._slot.__get__(part, cls) if self._slot else self._held(part)
        caller = sys._getframe(1)
        reader = caller.f_globals.get("__name__", "")
        code = caller.f_code
        if not _is_reader(reader) or code.co_name in _CHECKS_IN_CLASSES or _is_generated(code):
            return value
        return self._carry(value, reader)

    def __set__(self, part: Any, value: Any) -> None:
        if self._slot:
            self._slot.__set__(part, value)
        else:
            part.__dict__[self.name] = value

    def _held(self, part: Any) -> Any:
        try:
            return part.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None

    def _carry(self, value: Any, reader: str) -> Any:
        own = {} if self.wire != "ModelConfig.parameters" else _own(value)
        for key in own:
            tell("given", f"{self.wire}[{key}]", "any")
            if _cut and _cut["wire"] == f"{self.wire}[{key}]":
                value = {name: one for name, one in value.items() if name != key}
        given = _differs(value, self.default)
        tell("given" if given else "read", self.wire, reader)
        if _cut and _cut["wire"] == self.wire and _cut["reader"] in ("any", reader):
            return self.default if _cut["how"] == "cut" else other(value)
        return value


def _own(parameters: Mapping[str, Any]) -> Iterable[str]:
    return [name for name in parameters if name.startswith("penstock.")]


def _is_reader(module: str) -> bool:
    inside = module.startswith(("penstock.", "penstock_backends."))
    return inside and not any(module == one or module.startswith(f"{one}.") for one in CHECKS)


def _is_generated(code: CodeType) -> bool:
    """Whether this is a method that `dataclass` has made, which compares or prints all fields."""
    return code.co_filename == "<string>"


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


def _differs(value: Any, default: Any) -> bool:
    try:
        return bool(value != default)
    except ValueError:  # of arrays
        return True


def other(value: Any) -> Any:
    """Another value of the same type, for what has no default; the same if none is known."""
    if isinstance(value, Enum):
        return next((one for one in type(value) if one is not value), value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}-misrouted"
    if isinstance(value, Path):
        return value / "misrouted"
    return type(value)() if isinstance(value, tuple | frozenset | list | dict) else value


def _short(cls: type[Any]) -> str:
    """A class's name, with its room where that is not plain."""
    if cls.__module__.startswith(IN_PROCESS):
        return f"{cls.__module__.removeprefix('penstock.')}.{cls.__qualname__}"
    return cls.__name__


_dataclass = dataclasses.dataclass


def lay() -> None:
    """Lay wires into all that this process imports from here on."""
    if text := os.environ.get("PENSTOCK_WIRING_CUT"):
        cut(**json.loads(text))
    dataclasses.dataclass = _wired


def _wired(cls: Any = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass`, which lays wires to the fields of ours."""
    if cls is None:
        return lambda cls: _wired(cls, **options)
    made = _dataclass(cls, **options)
    module = made.__module__
    if any(module == part or module.startswith(f"{part}.") for part in (*PARTS, IN_PROCESS)):
        for field in dataclasses.fields(made):
            if field.init:
                setattr(made, field.name, Wire(made, field))
    return made


# -- arguments ---------------------------------------------------------------------------------


def lay_arguments(module: ModuleType) -> None:
    """Lay wires to the optional arguments of the methods of a module's public classes."""
    for cls in vars(module).values():
        if not inspect.isclass(cls) or not cls.__module__.startswith(IN_PROCESS):
            continue
        for name, method in list(vars(cls).items()):
            public = not name.startswith("_") or name == "__init__"
            if public and inspect.isfunction(method) and not dataclasses.is_dataclass(cls):
                setattr(cls, name, _with_wires(f"{_short(cls)}.{name}", method))


def _with_wires(called: str, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    empty = (inspect.Parameter.empty,)
    optional = {
        name: each.default
        for name, each in signature.parameters.items()
        if each.default not in empty
    }
    if not optional:
        return method

    @functools.wraps(method)
    def carrying(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        for name, default in optional.items():
            wire = f"{called}({name})"
            differs = name in bound.arguments and _differs(bound.arguments[name], default)
            tell("given" if differs else "read", wire, "any")
            if differs and _cut and _cut["wire"] == wire:
                del bound.arguments[name]
        return method(*bound.args, **bound.kwargs)

    return carrying


# -- pytest ------------------------------------------------------------------------------------


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins, with its fixtures."""
    global _of_file
    _of_file = True
    begin(nodeid)


def pytest_runtest_call() -> None:
    """The fixtures are there: what is read from here on is the test's own."""
    global _of_file
    _of_file = False


def pytest_runtest_logreport(report: Any) -> None:
    """A part of a test has ended: how, and after which time."""
    tell("outcome", report.when, report.outcome, str(report.duration))

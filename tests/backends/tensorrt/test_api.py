"""The stand-ins have no name and no parameter that TensorRT and CUDA themselves do not have."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.tensorrt.api_facts import written
from backends.tensorrt.conftest import PACKAGE
from programs.places import find

FACTS = Path(__file__).with_name("api-11.4.json")
BINDINGS = find("tensorrt-bindings")
needs_bindings = pytest.mark.needs(
    "tensorrt-bindings", "" if BINDINGS else "no tensorrt-bindings: `make tools` says why"
)


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return found


@needs_bindings
def test_the_facts_are_those_of_the_bindings() -> None:
    script = Path(__file__).with_name("api_facts.py")
    told = subprocess.run(
        [BINDINGS, script], capture_output=True, text=True, check=True, timeout=100
    )
    assert told.stdout == FACTS.read_text(encoding="utf-8")


_USE = """
import sys
import tensorrt_bindings as trt
sys.modules["tensorrt"] = trt
sys.path[:0] = sys.argv[1:]
from penstock_backends.tensorrt.execution import _allocator
from penstock_backends.tensorrt.plan import _DATATYPES, runtime_log
log = runtime_log()
for severity in trt.ILogger.Severity.__members__.values():
    log.log(severity, severity.name)
assert log.last_error() == "ERROR", log.last_error()
allocator = _allocator(None, None)
allocator.notify_shape("y", trt.Dims([2, 3]))
assert allocator.shape == (2, 3)
assert _DATATYPES.keys() <= {one.name for one in trt.DataType.__members__.values()}
assert trt.TensorFormat.LINEAR == trt.TensorFormat(0)
print(isinstance(log, trt.ILogger) and isinstance(allocator, trt.IOutputAllocator))
"""


@pytest.mark.contract("B-13")
@needs_bindings
def test_what_the_backend_derives_from_is_tensorrt_s_own() -> None:
    root = Path(__file__).parents[3]
    numpy = Path(np.__file__).parents[1]
    places = [str(place) for place in (root / "service", root / "backends", numpy)]
    command = [BINDINGS, "-c", _USE, *places]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert told.stdout == "True\n", told.stderr


def test_the_facts_are_of_their_form(facts: dict[str, Any]) -> None:
    assert written(facts) == FACTS.read_text(encoding="utf-8").rstrip("\n")


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    return ((name, one) for name, one in vars(kind).items() if not name.startswith("_"))


def _parameters(function: Any) -> list[str]:
    names = [*inspect.signature(inspect.unwrap(function)).parameters]
    return [name for name in names if name != "self"]


@pytest.mark.contract("B-13")
def test_classes_have_what_tensorrt_s_have(gpu: Any, facts: dict[str, Any]) -> None:
    import tensorrt

    checked = 0
    for name, told in facts["classes"].items():
        for member, value in _members(getattr(tensorrt, name)):
            if isinstance(value, property):
                settable = told["properties"][member] == "settable"
                assert settable or value.fset is None, f"{name}.{member}"
            elif callable(value) and not isinstance(value, type):
                assert _parameters(value) in told["methods"][member], f"{name}.{member}"
            checked += 1
    assert checked > 30


def test_members_and_functions_are_tensorrt_s(gpu: Any, facts: dict[str, Any]) -> None:
    import tensorrt

    for name, told in facts["enums"].items():
        members = getattr(tensorrt, name).__members__
        assert {one: int(member) for one, member in members.items()}.items() <= told.items()
    severities = tensorrt.ILogger.Severity.__members__
    assert {one: int(member) for one, member in severities.items()} == facts["severities"]
    for name, overloads in facts["functions"].items():
        assert _parameters(getattr(tensorrt, name)) in overloads
    assert tensorrt.__version__ == facts["release"]


def test_what_tensorrt_calls_has_its_parameters(gpu: Any, facts: dict[str, Any]) -> None:
    from penstock_backends.tensorrt.execution import _allocator
    from penstock_backends.tensorrt.plan import runtime_log

    given = {
        "IOutputAllocator": type(_allocator(None, None)),  # type: ignore[arg-type]
        "ILogger": type(runtime_log()),
    }
    for name, kind in given.items():
        asked = {method: parameters for method, *parameters in facts["classes"][name]["documented"]}
        called = [method for method, _ in _members(kind) if method in asked]
        assert called, name
        for method in called:
            assert _parameters(getattr(kind, method)) == asked[method]


_COMPARE = """
import importlib.util, inspect, sys
from cuda.bindings import runtime as real
spec = importlib.util.spec_from_file_location("stand_in", sys.argv[1])
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)
names = [name for name in vars(stand_in) if name.startswith("cuda")]
for name in names:
    ours, its = getattr(stand_in, name), getattr(real, name)
    if isinstance(ours, int):
        assert ours == its, name
    elif isinstance(ours, type):
        for member in ours:
            assert int(getattr(its, member.name)) == member, member
    else:
        ours = inspect.signature(inspect.unwrap(ours))
        assert [*ours.parameters] == [*inspect.signature(its).parameters], name
print(len(names))
"""


@pytest.mark.contract("B-13")
@pytest.mark.skipif(find_spec("cuda") is None, reason="pip install cuda-bindings")
def test_functions_have_the_parameters_of_cuda_s() -> None:
    """Of the real bindings, which are installed, and need no GPU to be asked."""
    stand_in = PACKAGE / "cuda" / "bindings" / "runtime.py"
    command = [sys.executable, "-c", _COMPARE, str(stand_in)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert told.stderr == ""
    assert int(told.stdout) > 30

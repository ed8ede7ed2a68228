"""The script that makes `api-11.4.json`: what TensorRT's Python API takes, as facts.

    .tools/tensorrt-bindings tests/backends/tensorrt/api_facts.py > api-11.4.json

`.tools/tensorrt-bindings` is a Python with TensorRT's bindings over empty libraries, where nothing
runs: `python tests/programs/install.py tensorrt-bindings`. The facts are read from the docstrings
that pybind11 writes, since its functions have no signatures. Imports nothing but the bindings.
"""

from __future__ import annotations

import json
import re
from typing import Any

CLASSES = (
    "Runtime",
    "ICudaEngine",
    "IExecutionContext",
    "ILogger",
    "IOutputAllocator",
    "IPluginRegistry",
)
ENUMS = ("DataType", "TensorIOMode", "TensorFormat", "ExecutionContextAllocationStrategy")
FUNCTIONS = ("get_plugin_registry", "init_libnvinfer_plugins")

_SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*)\) -> (.*)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?:^|, )(\w+): ")
_ASIDE = re.compile(r"\[[^\[\]]*\]|<[^<>]*>")


def facts(trt: Any) -> dict[str, Any]:
    """The classes with their methods and properties, enumerations and functions."""
    return {
        "source": "tensorrt_cu13_bindings",
        "release": trt.__version__,
        "classes": {name: _class(getattr(trt, name)) for name in CLASSES},
        "enums": {name: _members(getattr(trt, name)) for name in ENUMS},
        "severities": _members(trt.ILogger.Severity),
        "functions": {name: signatures(getattr(trt, name)) for name in FUNCTIONS},
    }


def _class(kind: Any) -> dict[str, Any]:
    methods, properties = {}, {}
    for name, value in sorted(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(value, property):
            properties[name] = "settable" if value.fset is not None else "read only"
        elif callable(value) and not isinstance(value, type):
            methods[name] = signatures(value)
    return {"methods": methods, "properties": properties, "documented": _callbacks(kind)}


def signatures(function: Any) -> list[list[str]]:
    """The names of the parameters of each overload, but for `self`."""
    found = []
    for name, parameters, _ in _SIGNATURE.findall(function.__doc__ or ""):
        plain = parameters
        while _ASIDE.search(plain):
            plain = _ASIDE.sub("", plain)
        names = [one for one in _PARAMETER.findall(plain) if one != "self"]
        if plain != "*args, **kwargs" and name:
            found.append(names)
    return found


def _callbacks(kind: Any) -> list[list[str]]:
    """Methods that the docstring of a class asks for: name and parameters."""
    asked = re.findall(r"def (\w+)\(self, ([^)]*)\)", kind.__doc__ or "")
    return [[name, *parameters.split(", ")] for name, parameters in asked]


def _members(kind: Any) -> dict[str, int]:
    return {name: int(member) for name, member in sorted(kind.__members__.items())}


def written(value: Any, indent: str = "") -> str:
    """As JSON, with the methods and properties of a class on lines of their own."""
    if not isinstance(value, dict) or not any(
        isinstance(one, dict | list) for one in value.values()
    ):
        return json.dumps(value)
    deeper = indent + " "
    lines = (f"{deeper}{json.dumps(name)}: {written(one, deeper)}" for name, one in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


if __name__ == "__main__":
    import tensorrt_bindings

    print(written(facts(tensorrt_bindings)))

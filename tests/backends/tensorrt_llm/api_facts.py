"""The script that makes `api-*.json`: what TensorRT-LLM's Python API takes, as facts.

    python tests/backends/tensorrt_llm/api_facts.py CHECKOUT RELEASE > api-1.4.json

CHECKOUT is a folder of NVIDIA/TensorRT-LLM at that release, or what there is of its
`tests/unittest/api_stability`. There `references_committed` has the names that are promised;
`references` has the others, with a status (beta, prototype, deprecated) or `listed` without one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

CLASSES: Final = {
    "LLM": "llm",
    "SamplingParams": "sampling_params",
    "GuidedDecodingParams": "guided_decoding_params",
    "CompletionOutput": "completion_output",
    "RequestOutput": "request_output",
}
REQUIRED: Final = "inspect._empty"
_REST: Final = "kwargs"
_TYPES: Final = ("bool", "int", "float", "str", "dict", "list")


def facts(checkout: Path, release: str) -> dict[str, Any]:
    """The API of a checkout: by class its methods and properties."""
    folder = checkout / "tests" / "unittest" / "api_stability"
    return {
        "source": "NVIDIA/TensorRT-LLM: tests/unittest/api_stability",
        "release": release,
        "classes": {name: _class(folder, f"{stem}.yaml") for name, stem in CLASSES.items()},
    }


def _class(folder: Path, name: str) -> dict[str, Any]:
    methods: dict[str, dict[str, Any]] = {}
    properties: dict[str, str] = {}
    for part, otherwise in (("references_committed", "committed"), ("references", "listed")):
        path = folder / part / name
        described = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        for method, about in (described.get("methods") or {}).items():
            status = about.get("status", otherwise)
            found = methods.setdefault(method, {"status": status, "parameters": {}})
            found["parameters"].update(_parameters(about["parameters"], status))
        for one, about in (described.get("properties") or {}).items():
            properties[one] = about.get("status", otherwise)
    return {"methods": methods, "properties": properties}


def _parameters(described: Mapping[str, Any], otherwise: str) -> Iterator[tuple[str, Any]]:
    for name, about in described.items():
        if name == _REST:
            continue
        known = {"type": _type(str(about["annotation"])), "status": about.get("status", otherwise)}
        default = about["default"]
        yield name, known if default == REQUIRED else known | {"default": default}


def _type(annotation: str) -> str:
    """The plain type, also of what may be `None`; `object` for classes and alternatives."""
    inner = annotation.removeprefix("Optional[").removesuffix("]").lower()
    plain = inner.partition("[")[0]
    return plain if plain in _TYPES else "object"


def written(value: Any, indent: str = "") -> str:
    """As JSON, with each parameter on a line of its own."""
    if not isinstance(value, dict) or not any(isinstance(one, dict) for one in value.values()):
        return json.dumps(value)
    deeper = indent + " "
    lines = (f"{deeper}{json.dumps(name)}: {written(one, deeper)}" for name, one in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


if __name__ == "__main__":
    print(written(facts(Path(sys.argv[1]), sys.argv[2])))

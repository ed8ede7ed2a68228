"""The script that makes the facts of TensorRT-LLM's API from its stability files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.tensorrt_llm.api_facts import CLASSES, facts, written

COMMITTED = """
methods:
  __init__:
    parameters:
      model: {annotation: "Union[str, pathlib.Path]", default: inspect._empty}
      max_tokens: {annotation: "Optional[int]", default: 32}
      kwargs: {annotation: Any, default: inspect._empty}
    return_annotation: None
properties:
  finished: {annotation: bool, default: inspect._empty}
"""
OTHERS = """
methods:
  __init__:
    parameters:
      backend: {annotation: "Optional[str]", default: null, status: deprecated}
      beams: {annotation: "Optional[List[int]]", default: null}
    return_annotation: None
  shutdown: {parameters: {}, return_annotation: None, status: beta}
properties: {}
"""


def test_names_kinds_defaults_and_statuses_are_taken(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "unittest" / "api_stability"
    for part, content in (("references_committed", COMMITTED), ("references", OTHERS)):
        (folder / part).mkdir(parents=True)
        (folder / part / "llm.yaml").write_text(content)
    found = facts(tmp_path, "9.9")
    assert json.loads(written(found)) == found
    assert found["release"] == "9.9"
    assert found["classes"]["SamplingParams"] == {"methods": {}, "properties": {}}
    assert found["classes"]["LLM"] == {
        "methods": {
            "__init__": {
                "status": "committed",
                "parameters": {
                    "model": {"type": "object", "status": "committed"},
                    "max_tokens": {"type": "int", "status": "committed", "default": 32},
                    "backend": {"type": "str", "status": "deprecated", "default": None},
                    "beams": {"type": "list", "status": "listed", "default": None},
                },
            },
            "shutdown": {"status": "beta", "parameters": {}},
        },
        "properties": {"finished": "committed"},
    }


@pytest.mark.parametrize("release", ["1.2", "1.4"])
def test_the_committed_facts_are_of_this_form(release: str) -> None:
    path = Path(__file__).with_name(f"api-{release}.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["release"].startswith(release)
    assert found["classes"].keys() == CLASSES.keys()
    assert written(found) == path.read_text(encoding="utf-8").rstrip("\n")

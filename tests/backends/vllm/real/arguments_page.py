"""The page `docs/reference/vllm-arguments.md`: arguments of vLLM, and which tests give them."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_origin

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.version import __version__

from penstock_backends.vllm.arguments.engine_keywords import _alternatives

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "vllm-arguments.md"
TESTS = ROOT / "tests" / "backends" / "vllm"

OBJECTS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "kv_transfer_config": (
        {"kv_connector": "ExampleConnector", "kv_role": "kv_both"},
        "vllm.config",
        "KVTransferConfig",
    ),
    "kv_events_config": (
        {"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:5557"},
        "vllm.config",
        "KVEventsConfig",
    ),
    "structured_outputs_config": (
        {"backend": "xgrammar", "disable_any_whitespace": True},
        "vllm.config",
        "StructuredOutputsConfig",
    ),
    "speculative_config": (
        {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3},
        "vllm.config",
        None,  # whose class vLLM makes when it knows the model
    ),
    "compilation_config": (
        {"mode": 0, "debug_dump_path": None},
        "vllm.config",
        "CompilationConfig",
    ),
    "pooler_config": ({"seq_pooling_type": "MEAN"}, "vllm.config", "PoolerConfig"),
    "attention_config": ({}, "vllm.config", "AttentionConfig"),
    "kernel_config": ({}, "vllm.config", "KernelConfig"),
    "profiler_config": ({}, "vllm.config", "ProfilerConfig"),
    "reasoning_config": ({}, "vllm.config", "ReasoningConfig"),
}
"""Objects for arguments, and the classes that vLLM makes of them."""

_HEAD = f"""\
# vLLM's engine arguments

What `model.json` of a model with `backend: "vllm"` may hold: the arguments of vLLM's
`AsyncEngineArgs`, here those of {__version__}. Names are checked before the engine starts
(`unknown engine argument 'max_seq_num' in '<file>'; did you mean 'max_num_seqs'?`). An object
becomes the class that the argument has, as on vLLM's command line, and an unknown name within it
fails the load too. Numbers and booleans may be texts. `disable_log_requests`, which samples of
Triton's backend have and vLLM has no longer, is `enable_log_requests` turned round. Everything else
is passed on as it is.

The tests are those in `tests/backends/vllm`. Every argument is given its default by
`real/test_engine_keywords.py::test_every_argument_may_be_given_its_default`; the last column names
others that give it. `real/arguments_page.py` writes the page; a test fails if it is out of date.

| argument | in `model.json` | further tests |
|---|---|---|
"""


def page() -> str:
    """The page."""
    given = _given_by_tests()
    rows = [
        f"| `{field.name}` | {_form(field.type)} | {', '.join(given.get(field.name, ()))} |"
        for field in sorted(fields(AsyncEngineArgs), key=lambda field: field.name)
        if not field.name.startswith("_")
    ]
    return _HEAD + "\n".join(rows) + "\n"


def _form(annotation: Any) -> str:
    """What the argument is in JSON."""
    types = list(_alternatives(annotation))
    config = next((one for one in types if is_dataclass(one)), None)
    if config is not None:
        return f"object: `{getattr(config, '__name__', '')}`"
    forms = {form for one in types if (form := _plain_form(one))}
    return " or ".join(sorted(forms)) or "any"


def _plain_form(one: Any) -> str:
    if isinstance(one, str):  # an annotation that is text
        return "object" if "dict" in one else ""
    if get_origin(one) is Literal or one is str:
        return "text"
    names = {bool: "boolean", int: "number", float: "number", dict: "object"}
    lists = {list: "list", tuple: "list", set: "list", dict: "object"}
    return names.get(one) or lists.get(get_origin(one) or one, "")


def _given_by_tests() -> dict[str, list[str]]:
    """The tests' files that give an argument, by its name."""
    found: dict[str, list[str]] = {name: ["`real/test_engine_keywords`"] for name in OBJECTS}
    for path in sorted(TESTS.rglob("*.py")):
        place = str(path.relative_to(TESTS)).removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _arguments_of(node):
                found.setdefault(name, []).append(f"`{place}`")
    return {name: list(dict.fromkeys(places)) for name, places in found.items()}


def _arguments_of(node: ast.AST) -> list[str]:
    """The arguments that `SETTINGS` of a file hold, or a call of one of the functions that read."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
        targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
        keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
        return [str(key) for key in keys] if "SETTINGS" in targets else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        reads = node.func.id in ("read", "keywords", "engine_of")
        return [word.arg for word in node.keywords if word.arg] if reads else []
    return []


if __name__ == "__main__":
    PAGE.write_text(page())

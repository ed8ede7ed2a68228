"""Rules for tests: they say what they assert, wait for events, and patch nothing private."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
WORDS = {
    *("raises", "raises_nothing", "warns", "fail", "suppress"),  # which errors there are
    *("wait_for", "timeout", "wait_until", "until", "eventually"),  # that it comes in time
}
SLEEPING = {
    "backends/tensorrt_llm/package/tensorrt_llm/model.py": "an engine that has a pace",
    "conformance/golden_row.py": "nothing tells that the model has begun",
    "conformance/python_models/sequences/test_requests.py": "a poll, whose questions are signs",
    "fakes/instances.py": "an instance that takes time, which is virtual",
    "harness/cancelling.py": "clients leave at random moments",
    "hosting/hosted/puppet.py": "a stream that has a pace",
    "in_process/every_type.py": "a stream that has a pace",
    "interop/service.py": "gRPC's interop tests say how long",
    "harness/front_walk.py": "no event says that a call has left nothing to be done",
    "rpc/transports/test_keepalive.py": "pings may come so often in real time",
    "scheduling/batching/batcher/test_batching.py": "uvloop has no other time",
    "scheduling/sequences/test_properties.py": "a play in virtual time",
    "simulation/backend.py": "all time there is virtual",
    "simulation/processes.py": "all time there is virtual",
    "simulation/world.py": "all time there is virtual",
}
"""Files in which something sleeps, and why there is no event or virtual time for it."""
PATCHING = {
    "backends/vllm/real/scripted_model.py": "an engine that runs gets another model",
    "backends/vllm/real/test_media.py": "a backend whose engine was never started",
    "backends/vllm/scripted.py": "an engine that vLLM was never started for",
    "hosting/fuzzing/victim.py": "a process that was never started",
    "interop/interop_pb2.py": "the compiler of protocol buffers writes it",
    "simulation/planted.py": "it plants bugs, which are anywhere",
}
"""Files that set private attributes, and why there is no parameter for it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Content:
    """What a function has in it, its inner functions included."""

    def __init__(self, node: Function) -> None:
        self.name = node.name
        nodes = list(ast.walk(node))
        calls = [inner.func for inner in nodes if isinstance(inner, ast.Call)]
        self.called = {call.id for call in calls if isinstance(call, ast.Name)}
        of_objects = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        self.asserts = any(isinstance(inner, ast.Assert) for inner in nodes) or any(
            name in WORDS or name.startswith("assert_") for name in self.called | of_objects
        )


def _modules(text: str = "") -> Iterator[tuple[str, ast.Module]]:
    """Those with a text that matches this pattern, by their paths."""
    pattern = re.compile(text)
    for path in sorted(TESTS.rglob("*.py")):
        content = path.read_text()
        if pattern.search(content):
            yield path.relative_to(TESTS).as_posix(), ast.parse(content, str(path))


def _found(look: Callable[[ast.AST], Iterator[int]], text: str) -> dict[str, list[int]]:
    """Lines by the files that have some."""
    lines = {path: [*look(module)] for path, module in _modules(text)}
    return {path: found for path, found in lines.items() if found}


# -- assertions ------------------------------------------------------------------------------------


@pytest.mark.time_limit(200)  # it reads all tests, which takes half a minute on a busy machine
def test_every_test_has_an_assertion() -> None:
    """Of its own, or in a function that it calls; by the words that there are for it."""
    functions = list(_functions(module for _, module in _modules()))
    asserting = {function.name for function in functions if function.asserts}
    while more := {f.name for f in functions if f.called & asserting} - asserting:
        asserting |= more
    tests = [function for function in functions if function.name.startswith("test_")]
    assert len(tests) > 3000
    silent = [test.name for test in tests if not (test.asserts or test.called & asserting)]
    assert silent == [], "tests without an assertion, pytest.raises or raises_nothing"


def _functions(modules: Iterable[ast.Module]) -> Iterator[Content]:
    """Those of modules, and the tests in classes."""
    for module in modules:
        for node in module.body:
            for inner in node.body if isinstance(node, ast.ClassDef) else (node,):
                if isinstance(inner, Function):
                    yield Content(inner)


# -- waiting ---------------------------------------------------------------------------------------


def test_nothing_sleeps_until_something_may_have_happened() -> None:
    """Virtual time may pass (`in_virtual_time`), and a `while` may look again and again."""
    found = _found(_sleeps, r"sleep\(")
    assert {path: lines for path, lines in found.items() if path not in SLEEPING} == {}
    assert SLEEPING.keys() - found.keys() == set(), "nothing sleeps there any more"


@pytest.mark.parametrize(
    ("text", "sleeps"),
    [
        ("async def test(): await asyncio.sleep(0.1)", True),
        ("def test():\n    for _ in range(3): time.sleep(pause)", True),
        ("while not done():\n    def look(): sleep(1)", True),
        ("async def test(): await asyncio.sleep(0)", False),
        ("while not done(): time.sleep(0.01)", False),
        ("@in_virtual_time\nasync def test(): await asyncio.sleep(9)", False),
    ],
)
def test_sleeping_is_found(text: str, sleeps: bool) -> None:
    assert bool([*_sleeps(ast.parse(text))]) is sleeps


def _sleeps(node: ast.AST, *, polls: bool = False) -> Iterator[int]:
    """Lines on which something sleeps that is neither in virtual time nor in a loop."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, Function):
            if not any(_name(one) == "in_virtual_time" for one in inner.decorator_list):
                yield from _sleeps(inner)
            continue
        if not polls and isinstance(inner, ast.Call) and _sleeps_now(inner):
            yield inner.lineno
        yield from _sleeps(inner, polls=polls or isinstance(inner, ast.While))


def _sleeps_now(call: ast.Call) -> bool:
    """Not `sleep(0)`, which is a turn of the event loop."""
    given = [getattr(one, "value", None) for one in call.args]
    return _name(call.func) == "sleep" and given != [0]


# -- private names ---------------------------------------------------------------------------------


def test_nothing_private_is_patched() -> None:
    """Parameters and the public door are how a test sets what it needs."""
    found = _found(_patches, r"(?<!self)(?<!cls)\._[A-Za-z]|(setattr|delattr|patch|object)\(")
    assert {path: lines for path, lines in found.items() if path not in PATCHING} == {}
    assert PATCHING.keys() - found.keys() == set(), "nothing is patched there any more"


@pytest.mark.parametrize(
    ("text", "patches"),
    [
        ('monkeypatch.setattr(probes, "_PATIENCE", 1.0)', True),
        ('monkeypatch.delattr("penstock.probes._PATIENCE")', True),
        ('mock.patch.object(probes, "_PATIENCE")', True),
        ("server._started = False", True),
        ("one, queue.entries[0]._left = 1, 2", True),
        ("caller._turn += 1", True),
        ('monkeypatch.setattr(probes, "PATIENCE", 1.0)', False),
        ('monkeypatch.setattr(reap, "__file__", "x")', False),
        ("self._started = server._started", False),
    ],
)
def test_patching_is_found(text: str, patches: bool) -> None:
    assert bool([*_patches(ast.parse(text))]) is patches


def _patches(module: ast.AST) -> Iterator[int]:
    """Lines on which a private attribute of something else is set."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if _is_private(node.attr) and _name(node.value) not in ("self", "cls"):
                yield node.lineno
        elif isinstance(node, ast.Call) and _name(node.func) in (
            *("setattr", "delattr", "patch", "object"),
        ):
            given = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            if any(isinstance(one, str) and _is_private(one.rpartition(".")[2]) for one in given):
                yield node.lineno


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _name(node: ast.expr) -> str:
    """The last name of an expression such as `asyncio.sleep`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")

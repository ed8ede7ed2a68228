"""Every test says what it asserts."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parent
WORDS = {
    *("raises", "raises_nothing", "warns", "fail", "suppress"),  # which errors there are
    *("wait_for", "timeout", "wait_until", "until", "eventually"),  # that it comes in time
}


class Function:
    """What a function has in it, its inner functions included."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.name = node.name
        nodes = list(ast.walk(node))
        calls = [inner.func for inner in nodes if isinstance(inner, ast.Call)]
        self.called = {call.id for call in calls if isinstance(call, ast.Name)}
        of_objects = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        self.asserts = any(isinstance(inner, ast.Assert) for inner in nodes) or any(
            name in WORDS or name.startswith("assert_") for name in self.called | of_objects
        )


def test_every_test_has_an_assertion() -> None:
    """Of its own, or in a function that it calls; by the words that there are for it."""
    functions = list(_functions(sorted(TESTS.rglob("*.py"))))
    asserting = {function.name for function in functions if function.asserts}
    while more := {f.name for f in functions if f.called & asserting} - asserting:
        asserting |= more
    tests = [function for function in functions if function.name.startswith("test_")]
    assert len(tests) > 3000
    silent = [test.name for test in tests if not (test.asserts or test.called & asserting)]
    assert silent == [], "tests without an assertion, pytest.raises or raises_nothing"


def _functions(paths: Iterable[Path]) -> Iterable[Function]:
    """Those of modules, and the tests in classes."""
    for path in paths:
        for node in ast.parse(path.read_text(), str(path)).body:
            for inner in node.body if isinstance(node, ast.ClassDef) else (node,):
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield Function(inner)

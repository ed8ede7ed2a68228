"""Format of a model's exceptions."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import NotFoundError
from penstock.hosting.link.messages import LONGEST_TEXT
from penstock_backends.python.pb_utils.config import ModelConfig
from penstock_backends.python.process.traceback_text import describe, failure, printable

Write = Callable[[str], Path]


@pytest.fixture
def model(tmp_path: Path) -> Write:
    """Writes a model.py."""

    def write(code: str) -> Path:
        path = tmp_path / "model.py"
        path.write_text(code)
        return path

    return write


def run(path: Path, function: str | None = None, *arguments: Any) -> BaseException:
    """The exception of loading the file, or of calling a function in it."""
    spec = importlib.util.spec_from_file_location("model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.raises(Exception) as raised:  # noqa: PT011, PT012 (whatever the model raises)
        spec.loader.exec_module(module)
        getattr(module, function or "")(*arguments)
    error = raised.value
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)  # this function is of the test


def test_frames_follow_the_innermost_first(model: Write) -> None:
    path = model(
        "def inner():\n    raise ValueError('boom')\n\n\ndef execute():\n    return inner()\n"
    )
    assert describe(run(path, "execute")) == (
        f"ValueError: boom\n\nAt:\n  {path}(2): inner\n  {path}(6): execute\n"
    )


def test_syntax_error_names_the_line(model: Write) -> None:
    """Its frames are those of the import machinery only."""
    error = run(model("class M:\n\n    def execute(self)\n        return []\n"))
    assert describe(error) == "SyntaxError: expected ':' (model.py, line 3)"


def test_failed_import_points_to_the_model(model: Write) -> None:
    path = model("import no_such_module_xyz\n")
    assert describe(run(path)) == (
        f"ModuleNotFoundError: No module named 'no_such_module_xyz'\n\nAt:\n  {path}(1): <module>\n"
    )


def test_frames_of_the_server_are_left_out(model: Write) -> None:
    path = model("def auto(config):\n    config.add_input({'name': 'A', 'bogus': 1})\n")
    text = describe(run(path, "auto", ModelConfig('{"name": "m"}')))
    assert text.endswith(f"'optional'.\n\nAt:\n  {path}(2): auto\n")


def test_empty_message_is_marked(model: Write) -> None:
    path = model("def f():\n    assert False\n")
    assert describe(run(path, "f")).startswith("AssertionError: <EMPTY MESSAGE>\n")


def test_without_a_traceback_there_is_the_message() -> None:
    assert describe(KeyError("k")) == "KeyError: 'k'"


def test_notes_follow_the_message() -> None:
    error = ValueError("boom")
    error.add_note("row 3")
    assert describe(error) == "ValueError: boom\nrow 3"


def test_cause_is_described_as_well(model: Write) -> None:
    path = model(
        "def f():\n    try:\n        {}['k']\n    except KeyError as error:\n"
        "        raise ValueError('outer') from error\n"
    )
    assert describe(run(path, "f")) == (
        f"ValueError: outer\n\nAt:\n  {path}(5): f\n\n"
        f"Caused by: KeyError: 'k'\n\nAt:\n  {path}(3): f\n"
    )


def test_members_of_a_group_are_described(model: Write) -> None:
    path = model(
        "import asyncio\n\n\nasync def fail():\n    raise ValueError('inside')\n\n\n"
        "async def f():\n    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(fail())\n\n\ndef execute(run):\n    run(f())\n"
    )
    text = describe(run(path, "execute", asyncio.run))
    assert text.startswith("ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n")
    assert f"Caused by: ValueError: inside\n\nAt:\n  {path}(5): fail\n" in text


def test_circle_of_causes_ends() -> None:
    error, cause = ValueError("a"), ValueError("b")
    error.__cause__, cause.__cause__ = cause, error
    assert describe(error) == "ValueError: a\n\nCaused by: ValueError: b"


def test_endless_recursion_is_cut(model: Write) -> None:
    path = model("def f():\n    f()\n")
    lines = describe(run(path, "f")).splitlines()
    assert len(lines) < 70
    assert any(line.endswith("more frames") for line in lines)


def test_message_that_cannot_be_made_is_no_harm() -> None:
    class BadError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert describe(BadError()) == "BadError: <RuntimeError while making the message>"


def test_refusal_has_a_code() -> None:
    assert failure(NotFoundError("no file")) == ("NOT_FOUND", "no file")
    assert failure(ValueError("boom")) == ("INTERNAL", "ValueError: boom")


def test_long_text_is_cut_to_what_the_link_carries() -> None:
    assert printable("x" * (LONGEST_TEXT + 1)) == "x" * LONGEST_TEXT

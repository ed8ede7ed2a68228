"""Wires: who reads through one that is cut sees the default, and nobody else does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from wiring import hook
from wiring.cutting import jobs
from wiring.recording import Recording
from wiring.report import lines
from wiring.wires import all_wires, without_use

READER = "penstock.scheduling.somewhere"


@dataclass(frozen=True, slots=True)
class Part:
    """A section of settings."""

    limit: int = 5
    names: tuple[str, ...] = field(default_factory=tuple)
    key: str = "k"


for _each in fields(Part):
    setattr(Part, _each.name, hook.Wire(Part, _each))


@pytest.fixture(autouse=True)
def _uncut() -> Iterator[None]:
    yield
    hook.cut("", "", "")


def _read(part: Any, name: str, reader: str = READER) -> Any:
    """What a module sees."""
    code = compile(f"part.{name}", "reader.py", "eval")
    return eval(code, {"__name__": reader, "part": part})


def test_a_reader_sees_the_default_where_the_wire_is_cut() -> None:
    part = Part(limit=7, names=("a",))
    hook.cut("Part.limit", "any", "cut")
    assert (_read(part, "limit"), _read(part, "names")) == (5, ("a",))
    hook.cut("Part.names", READER, "cut")
    assert (_read(part, "limit"), _read(part, "names")) == (7, ())


def test_a_misrouted_wire_has_another_value() -> None:
    hook.cut("Part.key", "any", "misrouted")
    assert _read(Part(key="mine"), "key") == "mine-misrouted"


@pytest.mark.parametrize(
    "reader", ["test_hook", "dataclasses", "penstock.core.config.json_form", "penstock.cli.values"]
)
def test_who_checks_or_prints_sees_what_was_given(reader: str) -> None:
    part = Part(limit=7)
    hook.cut("Part.limit", "any", "cut")
    assert _read(part, "limit", reader) == 7
    assert part == Part(limit=7) != Part()


def test_an_argument_that_is_cut_is_not_given() -> None:
    class Server:
        """A class in process."""

        def models(self, only_ready: bool = False) -> bool:
            return only_ready

    Server.__module__ = hook.IN_PROCESS
    module: Any = type("module", (), {"Server": Server})
    hook.lay_arguments(module)
    assert Server().models(only_ready=True)
    hook.cut(f"in_process.{Server.__qualname__}.models(only_ready)", "any", "cut")
    assert not Server().models(only_ready=True)


def test_tests_that_name_the_wire_are_asked_first() -> None:
    given = {"Part.limit a": ["t.py::quick", "t.py::slow_limit", "t.py::broken_limit"]}
    seconds = {"t.py::quick": 0.1, "t.py::slow_limit": 2.0}
    recording = Recording(seconds=seconds, given=given, failed=["t.py::broken_limit"])
    (job,) = jobs(recording, ["Part.limit", "Part.names"])
    assert job["tests"] == ["t.py::slow_limit", "t.py::quick"]


def test_every_wire_is_in_the_report() -> None:
    wires = all_wires()
    assert {"Settings.id", "ModelConfig.parameters[penstock.host]", "Input.dims"} <= {*wires}
    assert {*without_use()} <= {*wires}
    text = "\n".join(lines([{"wire": "Settings.id", "noticed": "t.py::named"}]))
    assert [wire for wire in wires if f"`{wire}`" not in text] == ["Settings.id"]

"""Control of models, and metrics, asked for by a model process."""

from __future__ import annotations

import pytest

from hosting.parent.services.calling_process import CallingProcess, turn
from penstock.hosting.link.messages import Kind


async def test_control_is_answered() -> None:
    process = CallingProcess()
    process.tell(Kind.CONTROL, (7, "load", ["m"]))
    await turn()
    assert process.said == [(Kind.CONTROLLED, (7, ["load", "m"], None))]


async def test_metric_is_answered() -> None:
    process = CallingProcess()
    process.tell(Kind.METRIC, (7, "add", [1]))
    assert process.said == [(Kind.CONTROLLED, (7, ["add", 1], None))]


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Kind.CONTROL, "not that"), (Kind.METRIC, "ZeroDivisionError: no metric")],
)
async def test_what_went_wrong_is_told(kind: Kind, text: str) -> None:
    process = CallingProcess()
    process.tell(kind, (7, "fail", []))
    await turn()
    ((number, value, problem),) = process.heard(Kind.CONTROLLED)
    assert (number, value) == (7, None)
    assert problem.endswith(text)


@pytest.mark.parametrize("operation", ["add", "fail"])
async def test_metric_without_a_number_wants_no_answer(operation: str) -> None:
    process = CallingProcess()
    process.tell(Kind.METRIC, (0, operation, [1]))
    assert process.said == []

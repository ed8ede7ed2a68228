"""Rows of a batch by the slots of its sequences, and the padding between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fakes import make_inference, turns
from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Trace
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.scheduling.sequences.instance import RowInstance

NOT_READY = Tensor.from_numpy(np.zeros((1, 1), np.int32))


class Engine:
    """An instance that keeps the batches that it is given, and ends them when it is told to."""

    name, serial, available, memory = "m_0", False, True, object()
    on_available: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.batches: list[Sequence[Inference]] = []
        self.done: Callable[[], None] = lambda: None

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        self.batches.append(batch)
        self.done = done


def made() -> tuple[RowInstance, Engine, list[Sequence[Inference]]]:
    engine, executed = Engine(), list[Sequence[Inference]]()
    controls: Any = SimpleNamespace(not_ready=lambda: {"READY": NOT_READY})
    return RowInstance(cast(Any, engine), executed.append, controls), engine, executed


def request(statistics: Statistics | None = None) -> Inference:
    return make_inference(
        "id",
        statistics=statistics,
        inputs={
            "TEXT": Tensor.from_strings(["a", "b"], (1, 2)),
            "NUMBER": Tensor.from_numpy(np.ones((1, 3), np.float32)),
        },
        parameters={"p": 1},
        correlation_id=7,
        sequence_start=True,
        sequence_end=True,
        timeline=Trace(0).root,
    )


def test_batches_of_rows_are_executed_one_at_a_time() -> None:
    rows, engine, _ = made()
    assert (rows.serial, engine.serial, rows.name) == (True, False, "m_0")
    assert rows.memory is engine.memory
    assert rows.available
    engine.available = False
    assert not rows.available


async def test_rows_without_a_request_are_zeros_that_are_not_ready() -> None:
    rows, engine, executed = made()
    statistics = Statistics()
    first, third = request(statistics), request(statistics)
    rows.rows = {third: 3, first: 1}
    ended: list[str] = []
    rows.execute([third, first], lambda: ended.append("done"))
    ((zero, one, two, three),) = engine.batches
    assert (one, three) == (first, third)
    for padding in (zero, two):
        asked = padding.request
        text, number = asked.inputs["TEXT"], asked.inputs["NUMBER"]
        assert (text.datatype, text.shape, text.elements()) == (DataType.BYTES, (1, 2), [b"", b""])
        assert number.numpy().tolist() == [[0.0] * 3]
        assert asked.inputs["READY"] is NOT_READY
        assert (asked.id, dict(asked.parameters), asked.correlation_id) == ("", {}, 0)
        assert (asked.sequence_start, asked.sequence_end) == (False, False)
        assert asked.scope is not first.request.scope
        assert asked.scope.timeline is None
        padding.statistics.executed(4, 1, 2, 3)
    assert statistics.execution_count == 2
    assert statistics.pending == 2  # the padding's own are not counted
    assert [rows.rows[each] for each in (zero, one, two, three)] == [0, 1, 2, 3]
    engine.done()
    assert (ended, len(executed)) == ([], 1)
    await turns()
    assert ended == ["done"]
    assert [*map(list, executed)] == [[zero, one, two, three]]
    assert [each.abandoned for each in (zero, one, two, three)] == [True, False, True, False]


async def test_a_batch_without_gaps_goes_as_it_is() -> None:
    rows, engine, _ = made()
    first, second = request(), request()
    rows.rows = {first: 1, second: 0}
    batch = [first, second]
    rows.execute(batch, lambda: None)
    assert engine.batches[0] is batch


@pytest.mark.parametrize("row", [1, 4])
async def test_nothing_is_padded_above_the_highest_row(row: int) -> None:
    rows, engine, _ = made()
    only = request()
    rows.rows = {only: row}
    rows.execute([only], lambda: None)
    assert len(engine.batches[0]) == row + 1

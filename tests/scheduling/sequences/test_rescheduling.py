"""Requests that their model wants once more: without the flags of their sequence (S-20)."""

from __future__ import annotations

import pytest

from fakes import in_virtual_time, turns
from penstock.core.config import ModelConfig
from penstock.core.errors import RequestCancelledError
from penstock.core.request import InferenceResponse
from penstock.inflight.inference import Inference
from scheduling.sequences.scene import BOTH, Recorder, Scene, echo, outcome, outcomes


def wanted(times: int) -> Recorder:
    """An instance that wants each request so many times more."""
    left: dict[Inference, int] = {}

    def answer(inference: Inference) -> InferenceResponse | None:
        left.setdefault(inference, times)
        if not left[inference]:
            return echo(inference)
        left[inference] -= 1
        inference.rescheduled = True
        return None

    return Recorder(answer=answer)


@pytest.mark.contract("S-20")
@BOTH
@in_virtual_time
async def test_a_request_that_is_wanted_again_neither_starts_nor_ends_its_sequence(
    model: ModelConfig,
) -> None:
    scene = Scene(model, wanted(2))
    sent = scene.send_all(1, "ab")
    assert await outcomes(sent) == ["a", "b"]
    rows = [row for batch in scene.instance.batches for row in batch]
    assert [(row.id, row.start, row.end) for row in rows] == [
        *(("a", 1, 0), ("a", 0, 0), ("a", 0, 0)),
        *(("b", 0, 1), ("b", 0, 0), ("b", 0, 0)),
    ]
    assert scene.statistics.pending == scene.statistics.in_flight == 0
    assert not any(each.rescheduled for each in sent)


@BOTH
@in_virtual_time
async def test_who_leaves_is_not_wanted_again(model: ModelConfig) -> None:
    def answer(inference: Inference) -> InferenceResponse | None:
        inference.rescheduled = True
        inference.stream.close()
        return None

    scene = Scene(model, Recorder(answer=answer))
    left = scene.send(1, "a", start=True, end=True)
    assert isinstance(await outcome(left), RequestCancelledError)
    await turns()
    assert scene.instance.ids == [["a"]]
    assert scene.statistics.pending == scene.statistics.in_flight == 0

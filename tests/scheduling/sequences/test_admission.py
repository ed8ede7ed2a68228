"""Which requests belong to a sequence, and their control tensors. Times are virtual."""

from __future__ import annotations

import logging

import pytest

from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError
from scheduling.sequences.scene import BOTH, Scene, direct, outcomes

# -- admission ------------------------------------------------------------------------------------


@pytest.mark.contract("S-02")
async def test_a_request_of_several_rows_is_refused() -> None:
    refusal = (
        "inference request to model 'm' must specify batch-size 1 due to requirements of sequence"
        " batcher"
    )
    with pytest.raises(InvalidRequestError, match=refusal):
        Scene(direct()).send(1, start=True, rows=2)


@pytest.mark.contract("S-03")
@pytest.mark.parametrize("id", [0, ""])
async def test_a_request_without_an_id_is_refused(id: int | str) -> None:
    refusal = "inference request to model 'm' must specify a non-zero or non-empty correlation ID"
    with pytest.raises(InvalidRequestError, match=refusal):
        Scene(direct()).send(id, start=True)


@pytest.mark.contract("S-04")
@pytest.mark.parametrize("id", [7, "seven"])
async def test_a_sequence_has_to_be_started(id: int | str) -> None:
    refusal = (
        f"inference request for sequence {id} to model 'm' must specify the START flag on the"
        " first request of the sequence"
    )
    with pytest.raises(InvalidRequestError, match=refusal):
        Scene(direct()).send(id)


@BOTH
async def test_a_refused_request_leaves_nothing_behind(model: ModelConfig) -> None:
    scene = Scene(model)
    with pytest.raises(InvalidRequestError):
        scene.send(1)
    assert await outcomes(scene.send_all(1, "ab")) == ["a", "b"]


@pytest.mark.contract("X-06")
@BOTH
async def test_a_number_and_its_text_are_two_sequences(model: ModelConfig) -> None:
    scene = Scene(model)
    both = [*scene.send_all(1, "ab"), *scene.send_all("1", "cd")]
    assert await outcomes(both) == [*"abcd"]


@pytest.mark.contract("S-05")
@BOTH
async def test_a_start_within_a_sequence_begins_it_anew(
    model: ModelConfig, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(model)
    first = [scene.send(1, "a", start=True), scene.send(1, "b")]
    with caplog.at_level(logging.WARNING):
        again = [scene.send(1, "c", start=True), scene.send(1, "d", end=True)]
    assert await outcomes([*first, *again]) == [*"abcd"]
    assert [row.start for batch in scene.instance.batches for row in batch] == [1, 0, 1, 0]
    assert "has a conflict" in caplog.text


# -- control tensors ------------------------------------------------------------------------------


@pytest.mark.contract("S-11", "S-12")
@BOTH
async def test_control_tensors_give_the_place_of_a_request_in_its_sequence(
    model: ModelConfig,
) -> None:
    scene = Scene(model)
    await outcomes([*scene.send_all(5, "abc"), *scene.send_all(6, "d")])
    rows = [row for batch in scene.instance.batches for row in batch]
    told = {row.id: (row.start, row.end, row.ready, row.corrid) for row in rows}
    assert told == {"a": (1, 0, 1, 5), "b": (0, 0, 1, 5), "c": (0, 1, 1, 5), "d": (1, 1, 1, 6)}

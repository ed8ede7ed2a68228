"""Which requests belong to a sequence, and their control tensors. Times are virtual."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.config import (
    Control,
    ControlInput,
    ControlKind,
    ModelConfig,
    StrategyDirect,
    StrategyOldest,
)
from penstock.core.errors import InvalidRequestError
from penstock.core.tensor import DataType
from scheduling.sequences.scene import BOTH, Scene, config, direct, outcomes

STRATEGIES = pytest.mark.parametrize(
    "strategy",
    [{"direct": StrategyDirect()}, {"oldest": StrategyOldest()}],
    ids=["direct", "oldest"],
)

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
        Scene(config(control_input=())).send(id)


@pytest.mark.contract("S-12", "V-16")
@STRATEGIES
@pytest.mark.parametrize(
    ("takes", "id", "given"),
    [
        *((name, "17", "BYTES") for name in ("UINT64", "INT64", "UINT32", "INT32")),
        ("BYTES", 17, "UINT64"),
    ],
)
async def test_an_id_of_another_kind_than_the_models_is_refused(
    strategy: dict[str, Any], takes: str, id: int | str, given: str
) -> None:
    scene = Scene(config(control_input=_id_control(takes), **strategy))
    refusal = (
        f"sequence batching control 'ID' data-type is '{given}', but model 'm' expects '{takes}'"
    )
    for request_id, told in (("r", "r"), ("", "<id_unknown>")):
        with pytest.raises(InvalidRequestError) as refused:
            scene.send(id, request_id, start=True)
        assert refused.value.message == f"[request id: {told}] {refusal}"
    assert not scene.batcher.has_sequences


@pytest.mark.contract("S-12", "V-16")
@pytest.mark.parametrize(("takes", "id"), [("BYTES", "17"), ("INT32", 17)])
async def test_an_id_of_the_models_kind_is_taken(takes: str, id: int | str) -> None:
    scene = Scene(config(control_input=_id_control(takes)))
    assert await outcomes(scene.send_all(id, "ab")) == ["a", "b"]


@pytest.mark.contract("S-03")
@pytest.mark.parametrize("takes", ["BYTES", "INT32"])
@pytest.mark.parametrize("id", [0, ""])
async def test_no_id_is_of_no_kind(takes: str, id: int | str) -> None:
    with pytest.raises(InvalidRequestError, match="non-zero or non-empty correlation ID"):
        Scene(config(control_input=_id_control(takes))).send(id, start=True)


@pytest.mark.contract("S-20")
@pytest.mark.parametrize(("takes", "made_up"), [("BYTES", [b"2"]), ("UINT64", 2)])
async def test_an_id_that_is_made_up_is_of_the_models_kind(takes: str, made_up: Any) -> None:
    """And of no sequence that goes on: here the first one's."""
    scene = Scene(config(control_input=_id_control(takes), iterative_sequence=True))
    first = scene.send("1" if takes == "BYTES" else 1, "a", start=True)
    second = scene.send(0, "b")
    assert await outcomes([first, second]) == ["a", "b"]
    told = [request for batch in scene.instance.requests for request in batch][1].inputs["ID"]
    assert (told.elements() if takes == "BYTES" else told.numpy().item()) == made_up


def _id_control(takes: str) -> tuple[ControlInput, ...]:
    control = Control(ControlKind.CONTROL_SEQUENCE_CORRID, data_type=DataType(takes))
    return (ControlInput("ID", (control,)),)


@BOTH
async def test_a_refused_request_leaves_nothing_behind(model: ModelConfig) -> None:
    scene = Scene(model)
    with pytest.raises(InvalidRequestError):
        scene.send(1)
    assert await outcomes(scene.send_all(1, "ab")) == ["a", "b"]


@pytest.mark.contract("X-06")
@STRATEGIES
async def test_a_number_and_its_text_are_two_sequences(strategy: dict[str, Any]) -> None:
    """For a model that asks for no id."""
    scene = Scene(config(control_input=(), **strategy))
    both = [*scene.send_all(1, "ab"), *scene.send_all("1", "cd")]
    assert await outcomes(both) == [*"abcd"]


@pytest.mark.contract("S-05")
@BOTH
async def test_a_start_within_a_sequence_begins_it_anew(
    model: ModelConfig, caplog: pytest.LogCaptureFixture
) -> None:
    # A name of its own: of one model's warnings few are logged in a minute.
    scene = Scene(replace(model, name="begun anew"))
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

"""Control tensors, in every encoding that a configuration may choose."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.config import Control, ControlInput, ControlKind, SequenceBatching
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.scheduling.sequences.controls import Controls

START, END, READY, ID = (
    ControlKind(f"CONTROL_SEQUENCE_{word}") for word in ("START", "END", "READY", "CORRID")
)


def controls(kind: ControlKind, *, batched: bool = True, **encoding: Any) -> Controls:
    tensor = ControlInput("C", (Control(kind, **encoding),))
    return Controls(SequenceBatching(control_input=(tensor,)), batched=batched)


def told(made: Controls, **fields: Any) -> Tensor:
    return made.tensors(InferenceRequest("m", **fields))["C"]


@pytest.mark.contract("S-11")
@pytest.mark.parametrize(
    ("field", "pair", "datatype"),
    [
        ("int32_false_true", (-3, 7), DataType.INT32),
        ("fp32_false_true", (0.5, -1.5), DataType.FP32),
        ("bool_false_true", (False, True), DataType.BOOL),
        ("bool_false_true", (True, False), DataType.BOOL),
    ],
)
@pytest.mark.parametrize(
    ("kind", "flag"), [(START, "sequence_start"), (END, "sequence_end"), (READY, "")]
)
def test_a_signal_is_one_of_two_values(
    kind: ControlKind, flag: str, field: str, pair: tuple[Any, Any], datatype: DataType
) -> None:
    encoding: dict[str, Any] = {field: pair}
    made = controls(kind, **encoding)
    raised = told(made, **({flag: True} if flag else {}))
    lowered = made.not_ready()["C"]
    assert (raised.datatype, raised.numpy().tolist()) == (datatype, [[pair[1]]])
    assert (lowered.datatype, lowered.numpy().tolist()) == (datatype, [[pair[0]]])


@pytest.mark.contract("S-11")
def test_without_batches_a_signal_has_one_dimension() -> None:
    assert told(controls(READY, batched=False, int32_false_true=(0, 1))).shape == (1,)


@pytest.mark.contract("S-12")
@pytest.mark.parametrize("name", ["UINT64", "INT64", "UINT32", "INT32"])
@pytest.mark.parametrize("id", [1, 0x1_2345_6789, (1 << 64) - 1])
def test_an_id_is_cut_to_the_size_of_its_datatype(name: str, id: int) -> None:
    made = controls(ID, data_type=DataType(name))
    tensor = told(made, correlation_id=id)
    expected = id.to_bytes(8, "little")[: tensor.datatype.itemsize]
    assert (tensor.datatype, tensor.shape, bytes(tensor.buffer)) == (
        DataType(name),
        (1, 1),
        expected,
    )


@pytest.mark.contract("S-12")
def test_a_text_id_is_a_tensor_of_bytes() -> None:
    made = controls(ID, data_type=DataType.BYTES)
    assert told(made, correlation_id="Zoë").elements() == ["Zoë".encode()]
    assert made.not_ready()["C"].elements() == [b""]


@pytest.mark.contract("S-12")
def test_without_a_sequence_an_id_is_zero() -> None:
    assert controls(ID, data_type=DataType.INT32).not_ready()["C"].numpy().tolist() == [[0]]


def test_one_tensor_for_each_control_that_is_named() -> None:
    assert Controls(SequenceBatching(), batched=True).tensors(InferenceRequest("m")) == {}

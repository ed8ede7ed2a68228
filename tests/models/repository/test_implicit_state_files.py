"""First values of states, and what is wrong with some of them; the texts are Triton's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import model_config
from penstock.core.config import InitialState, SequenceBatching, SequenceState
from penstock.core.errors import ConfigError, InternalError
from penstock.core.tensor import DataType, Tensor
from penstock.models.repository.implicit_state_files import read_states

STATE = SequenceState("S", "S_OUT", DataType.INT32, (2,))
ZERO = InitialState(DataType.INT32, (2,), zero_data=True, name="zero")
FILE = InitialState(DataType.INT32, (2,), data_file="first", name="first")


def first(path: Path, *initial: InitialState, rows: int = 8, **changes: Any) -> Tensor:
    """The value of the one state when a sequence starts."""
    state = replace(STATE, initial_state=initial, **changes)
    config = model_config(max_batch_size=rows, sequence_batching=SequenceBatching(state=(state,)))
    return read_states(config, path).initial()["S"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "first").write_bytes(bytes([7, 0, 0, 0, 9, 0, 0, 0, 5]))
    return tmp_path


@pytest.mark.contract("S-17")
def test_zeros(path: Path) -> None:
    assert first(path, ZERO).numpy().tolist() == [[0, 0]]


@pytest.mark.contract("S-17")
def test_a_file_of_the_model(path: Path) -> None:
    """What it holds beyond the state is not looked at."""
    assert first(path, FILE).numpy().tolist() == [[7, 9]]


@pytest.mark.contract("S-17")
def test_without_batches_there_is_no_dimension_for_them(path: Path) -> None:
    assert first(path, FILE, rows=0).shape == (2,)


@pytest.mark.contract("S-17", "S-18")
def test_without_a_value_lengths_that_vary_are_one(path: Path) -> None:
    assert first(path, dims=(-1, 3)).numpy().tolist() == [[[0, 0, 0]]]


@pytest.mark.contract("S-17")
def test_texts_are_empty_or_those_of_the_file(path: Path) -> None:
    texts: dict[str, Any] = {"data_type": DataType.BYTES, "dims": (2,)}
    assert first(path, **texts).elements() == [b"", b""]
    (path / "initial_state" / "first").write_bytes(b"\2\0\0\0ab\1\0\0\0c")
    given = replace(FILE, data_type=DataType.BYTES)
    assert first(path, given, **texts).elements() == [b"ab", b"c"]


@pytest.mark.contract("S-17")
@pytest.mark.parametrize(
    ("initial", "text"),
    [
        (replace(ZERO, data_type=DataType.FP32), "The data type used for 'initial_state' field of"),
        (replace(ZERO, name=""), "Field 'name' must be set when using initial_state for state"),
        (replace(ZERO, dims=(2, 1)), "for state input 'S'. 2 != 1"),
        (replace(ZERO, dims=(-1,)), "state input name 'S' contains variable dimensions."),
        (replace(ZERO, dims=(3,)), "doesn't match 'state' dim description. 3 != 2"),
        (replace(ZERO, zero_data=None), "expects state'S' to have state_data set"),
    ],
)
def test_what_does_not_fit_is_refused(path: Path, initial: InitialState, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        first(path, initial)
    assert text in refused.value.message


@pytest.mark.contract("S-17")
def test_a_file_that_is_not_there_is_an_internal_error(path: Path) -> None:
    """As Triton calls it."""
    with pytest.raises(InternalError, match="for read initial_state/other: No such"):
        first(path, replace(FILE, data_file="other"))


@pytest.mark.contract("S-17")
def test_a_file_that_is_too_short_is_refused(path: Path) -> None:
    (path / "initial_state" / "first").write_bytes(b"1234567")
    with pytest.raises(ConfigError, match="setting expects 8 bytes, but the data provided from"):
        first(path, FILE)


@pytest.mark.contract("S-17")
def test_a_state_has_one_first_value(path: Path) -> None:
    with pytest.raises(ConfigError, match="exactly one or zero element"):
        first(path, ZERO, FILE)


def test_a_state_is_declared_once() -> None:
    batching = SequenceBatching(state=(STATE, STATE))
    with pytest.raises(ConfigError, match="State input name 'S' specified more than once"):
        read_states(model_config(sequence_batching=batching), Path())


@pytest.mark.contract("S-17")
def test_a_value_says_the_lengths_that_vary(path: Path) -> None:
    given = replace(ZERO, dims=(3,))
    assert first(path, given, dims=(-1,)).numpy().tolist() == [[0, 0, 0]]


@pytest.mark.contract("S-17")
def test_refusals_are_triton_s_to_the_letter(path: Path) -> None:
    (path / "initial_state" / "first").write_bytes(b"1234567")
    told = []
    for initial in (
        (ZERO, FILE),
        (replace(ZERO, data_type=DataType.FP32),),
        (replace(ZERO, name=""),),
        (replace(ZERO, dims=(2, 1)),),
        (replace(ZERO, dims=(-1,)),),
        (replace(ZERO, dims=(3,)),),
        (replace(ZERO, zero_data=None),),
        (FILE,),
    ):
        with pytest.raises(ConfigError) as refused:
            first(path, *initial)
        told.append(refused.value.message)
    assert told == [
        "initial_state field for state input 'S' must contain exactly one or zero element. Found"
        " '2' elements.",
        "The data type used for 'initial_state' field of state 'S' does not match the state data"
        " type.",
        "Field 'name' must be set when using initial_state for state input 'S'.",
        "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for"
        " state input 'S'. 2 != 1",
        "'initial_state' field for state input name 'S' contains variable dimensions.",
        "'initial_state' dim for input name 'S' doesn't match 'state' dim description. 3 != 2",
        "initial_state setting expects state'S' to have state_data set",
        "initial_state setting expects 8 bytes, but the data provided from firstonly has 7 bytes.",
    ]

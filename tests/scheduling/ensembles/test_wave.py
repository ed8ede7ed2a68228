"""Waves: which steps are ready, and which tensors are kept."""

from __future__ import annotations

import pytest

from penstock.core.request import InferenceResponse
from penstock.scheduling.ensembles.plan import (
    EnsemblePlan,
    MappedTensor,
    PlannedStep,
    SequenceMark,
    Wave,
)
from scheduling.ensembles.fake_models import plan, step, tensor, values

ONE, TWO = tensor(1), tensor(2)

DIAMOND = plan([step("d", "B C", "D"), step("b", "A", "B"), step("c", "A", "C")], "D")


def _wave(of: EnsemblePlan = DIAMOND) -> Wave:
    return Wave(of.subgraph(()))


@pytest.mark.contract("E-02")
def test_a_step_is_ready_when_all_its_tensors_are_there() -> None:
    wave = _wave()
    assert wave.add({"A": ONE}) == [1, 2]
    assert wave.add({"B": ONE}) == []
    assert wave.add({"C": ONE}) == [0]


def test_an_unused_tensor_is_not_kept() -> None:
    wave = _wave()
    assert wave.add({"OTHER": ONE}) == []
    assert wave.held == 0


@pytest.mark.contract("E-19")
def test_a_tensor_is_dropped_with_its_last_use() -> None:
    wave = _wave()
    wave.add({"A": ONE})
    wave.take_inputs(DIAMOND.steps[1])
    assert wave.held == 1
    wave.take_inputs(DIAMOND.steps[2])
    assert wave.held == 0


def test_an_output_that_is_also_taken_by_a_step_is_kept_for_the_response() -> None:
    chain = plan([step("a", "A", "B"), step("b", "B", "C")], "B C")
    wave = _wave(chain)
    wave.add({"B": ONE})
    wave.take_inputs(chain.steps[1])
    wave.add({"C": TWO})
    assert wave.complete
    assert values(wave.response(of_text=False)) == {"B": [1], "C": [2]}
    assert wave.held == 0


def test_a_step_may_take_one_tensor_under_two_names() -> None:
    twice = PlannedStep(
        "t", "", (MappedTensor("L", "A"), MappedTensor("R", "A")), (MappedTensor("D", "D"),)
    )
    wave = Wave(plan([twice], "D").subgraph(()))
    assert wave.add({"A": ONE}) == [0]
    inputs, _ = wave.take_inputs(twice)
    assert inputs == {"L": ONE, "R": ONE}
    assert wave.held == 0


@pytest.mark.contract("E-08")
def test_an_absent_tensor_makes_steps_ready_and_is_left_out() -> None:
    pair = plan([step("a", "A O", "B")], "B")
    wave = _wave(pair)
    assert wave.add({"A": ONE, "O": None}) == [0]
    assert wave.take_inputs(pair.steps[0])[0] == {"A": ONE}


def test_an_output_that_no_model_made_is_left_out_of_the_response() -> None:
    wave = _wave()
    wave.add({"D": None})
    assert wave.complete
    assert wave.response(of_text=False).outputs == {}


def test_a_wave_without_a_mark_has_no_sequence_parameters() -> None:
    wave = _wave()
    wave.add({"D": ONE})
    assert wave.response(of_text=False).parameters == InferenceResponse().parameters


@pytest.mark.contract("E-12")
def test_the_first_mark_counts_where_tensors_disagree() -> None:
    wave = _wave()
    wave.add({"B": ONE}, SequenceMark(7, start=True))
    wave.add({"C": ONE}, SequenceMark(8))
    assert wave.take_inputs(DIAMOND.steps[0])[1] == SequenceMark(7, start=True)

"""Execution of ensembles of fake models."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from harness.outcomes import raises_nothing
from penstock.core.call_chain import CallingInstance, NestedCall
from penstock.core.errors import (
    InvalidRequestError,
    NotFoundError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.region import HostSlice, Region, RegionSlice
from penstock.core.request import InferenceResponse, RequestScope, Sender
from penstock.core.tensor import Tensor
from penstock.inflight.statistics import FailureReason
from penstock.scheduling.ensembles.scheduler import EnsembleScheduler
from scheduling.ensembles.fake_models import (
    CHAIN,
    Asked,
    FakeModel,
    ask,
    plan,
    step,
    tensor,
    values,
)

ONE, TWO, THREE = tensor(1), tensor(2), tensor(3)

FORK = plan([step("left", "A", "L"), step("right", "A", "R"), step("join", "L R", "D")], "D")


def _chain() -> tuple[FakeModel, FakeModel, Asked]:
    first, second = FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(CHAIN, [first, second]), {"A": ONE})
    return first, second, asked


# -- depth ---------------------------------------------------------------------------------------


def test_a_chain_of_steps_that_answer_at_once_may_be_long() -> None:
    length = 2000
    steps = [step("next", f"T{n}", f"T{n + 1}") for n in range(length)]
    names = iter(range(1, length + 1))
    model = FakeModel(answer=lambda _: {f"T{next(names)}": ONE})
    asked = ask(EnsembleScheduler(plan(steps, f"T{length}"), [model] * length), {"T0": ONE})
    assert asked.taken() == [{f"T{length}": [1]}]


def test_any_number_of_calls_may_wait_for_a_model_that_refuses_them() -> None:
    model = FakeModel()
    scheduler = EnsembleScheduler(plan([step("m", "A", "B")], "B"), [model], 1)
    asked = [ask(scheduler, {"A": ONE}) for _ in range(2000)]
    model.refusal = UnavailableError("it is gone")
    model.streams[0].fail(model.refusal)
    assert {each.failure.message for each in asked} == {"in ensemble 'ens', it is gone"}
    model.refusal = None
    assert ask(scheduler, {"A": ONE}).stream.error is None
    assert len(model.requests) == 2


@pytest.mark.contract("E-11", "E-13")
def test_requests_that_leave_while_they_wait_for_a_place_are_forgotten() -> None:
    model = FakeModel()
    scheduler = EnsembleScheduler(plan([step("m", "A", "B")], "B"), [model], 1)
    first, *others = (ask(scheduler, {"A": ONE}) for _ in range(10))
    for other in others[1:]:
        other.stream.close()
    assert scheduler._ensemble.limits[0].waiting == 1
    model.reply(B=TWO)
    assert len(model.requests) == 2
    model.reply(B=TWO)
    assert [first.taken(), others[0].taken()] == [[{"B": [2]}]] * 2


# -- one answer ----------------------------------------------------------------------------------


@pytest.mark.contract("E-01")
def test_what_a_step_makes_is_what_the_next_one_gets() -> None:
    first, second, asked = _chain()
    assert second.requests == []
    first.reply(B=TWO)
    assert second.requests[0].inputs == {"B": TWO}
    second.reply(C=THREE)
    assert asked.taken() == [{"C": [3]}]
    assert asked.stream.exhausted


@pytest.mark.contract("E-19")
def test_tensors_are_handed_on_and_not_copied() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO)
    assert second.requests[0].inputs["B"] is TWO
    second.reply(C=THREE)
    (response,) = asked.stream.take_ready()
    assert response.outputs["C"] is THREE
    assert response.final


@pytest.mark.contract("E-02")
def test_branches_run_at_the_same_time_and_are_joined() -> None:
    left, right, join = FakeModel(), FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(FORK, [left, right, join]), {"A": ONE})
    assert (left.running, right.running) == (1, 1)
    right.reply(R=THREE)
    assert join.requests == []
    left.reply(L=TWO)
    assert values(InferenceResponse(join.requests[0].inputs)) == {"L": [2], "R": [3]}
    join.reply(D=ONE)
    assert asked.taken() == [{"D": [1]}]


def test_models_that_answer_at_once_are_no_matter() -> None:
    models = [
        FakeModel(lambda _: {"L": TWO}),
        FakeModel(lambda _: {"R": THREE}),
        FakeModel(lambda request: {"D": request.inputs["R"]}),
    ]
    asked = ask(EnsembleScheduler(FORK, models), {"A": ONE})
    assert asked.taken() == [{"D": [3]}]
    assert [len(model.requests) for model in models] == [1, 1, 1]


@pytest.mark.contract("E-18")
def test_only_the_outputs_that_are_asked_for_are_made() -> None:
    two = plan([step("a", "A", "B"), step("b", "A", "C")], "B C")
    a, b = FakeModel(lambda _: {"B": TWO}), FakeModel()
    asked = ask(EnsembleScheduler(two, [a, b]), {"A": ONE}, requested_outputs=("B",))
    assert asked.taken() == [{"B": [2]}]
    assert b.requests == []


@pytest.mark.contract("E-12", "S-21")
def test_steps_get_what_was_asked_with_the_request() -> None:
    first = FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, FakeModel()])
    fields: dict[str, Any] = {
        "id": "x",
        "priority": 2,
        "timeout": 5,
        "parameters": {"a": "b"},
        "correlation_id": "s",
        "sequence_start": True,
        "sequence_end": False,
    }
    scope = RequestScope(12.5, (NestedCall(CallingInstance("bls_0")),), sender=Sender("tenant", 1))
    ask(scheduler, {"A": ONE}, **fields, scope=scope)
    (request,) = first.requests
    assert {name: getattr(request, name) for name in fields} == fields
    assert vars(request.scope) == vars(scope)
    assert (request.model_name, request.requested_outputs) == ("first", ("B",))


def test_only_the_last_step_puts_outputs_where_the_client_wants_them() -> None:
    place: Any = object()
    places = {"B": place, "C": place}
    two = plan([step("first", "A", "B"), step("second", "B", "C")], "B C")
    first, second = FakeModel(lambda _: {"B": TWO}), FakeModel()
    ask(EnsembleScheduler(two, [first, second]), {"A": ONE}, output_places=places)
    assert first.requests[0].output_places == {}  # the second step reads it as well
    assert second.requests[0].output_places == {"C": place}


def test_outputs_whose_classes_are_asked_for_stay_in_the_server() -> None:
    first = FakeModel()
    bare = plan([step("first", "A", "B")], "B")
    wanted: dict[str, Any] = {"output_places": {"B": object()}, "classes": {"B": 3}}
    ask(EnsembleScheduler(bare, [first]), {"A": ONE}, **wanted)
    assert (first.requests[0].output_places, first.requests[0].classes) == ({}, {})


@pytest.mark.contract("E-12")
def test_a_step_may_change_the_sequence_for_those_after_it() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO, parameters={"sequence_id": 9, "sequence_end": True})
    request = second.requests[0]
    assert (request.correlation_id, request.sequence_end) == (9, True)
    second.reply(C=THREE)
    (response,) = asked.stream.take_ready()
    assert response.parameters == {"sequence_id": 9, "sequence_start": False, "sequence_end": True}


def test_invalid_sequence_parameters_of_a_step_fail_the_request() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO, parameters={"sequence_start": 1})
    assert "to be TRITONSERVER_PARAMETER_BOOL" in asked.failure.message
    assert second.requests == []


@pytest.mark.contract("E-08")
def test_an_optional_input_that_is_absent_is_absent_for_the_step() -> None:
    model = FakeModel(lambda request: {"C": tensor(len(request.inputs))})
    scheduler = EnsembleScheduler(plan([step("m", "A O", "C")], "C", ["O"]), [model])
    assert ask(scheduler, {"A": ONE}).taken() == [{"C": [1]}]
    assert ask(scheduler, {"A": ONE, "O": TWO}).taken() == [{"C": [2]}]


@pytest.mark.contract("E-08")
def test_an_output_that_a_model_leaves_out_is_absent_for_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "penstock")
    first, second, asked = _chain()
    first.reply()
    assert second.requests[0].inputs == {}
    assert not caplog.messages
    second.reply()
    assert asked.taken() == [{}]
    assert caplog.messages == ["Composing models did not output tensor C"]


@pytest.mark.contract("E-09")
def test_an_ensemble_that_comes_to_a_standstill_fails() -> None:
    first, _, asked = _chain()
    first.streams[0].end()
    error = asked.failure
    assert isinstance(error, InvalidRequestError)
    assert error.message == (
        "in ensemble 'ens', [request id: <id_unknown>] unexpected deadlock, at least one output is"
        " not set while no more ensemble steps can be made"
    )


def test_a_second_answer_of_a_step_that_has_one_is_not_listened_to() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO, final=False)
    first.reply(B=THREE)
    assert len(second.requests) == 1
    second.reply(C=ONE)
    assert asked.taken() == [{"C": [1]}]


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.contract("E-07")
def test_a_step_that_fails_fails_the_request_with_its_code() -> None:
    first, second, asked = _chain()
    first.streams[0].fail(NotFoundError("no such word"))
    error = asked.failure
    assert (type(error), error.message) == (NotFoundError, "in ensemble 'ens', no such word")
    assert second.requests == []


def test_an_error_that_is_a_response_fails_the_request() -> None:
    first, _, asked = _chain()
    first.streams[0].send(InferenceResponse(error=NotFoundError("no such word")))
    assert asked.failure.message == "in ensemble 'ens', no such word"
    assert first.cancelled == [0]


def test_a_request_that_a_step_refuses_fails() -> None:
    models = FakeModel(lambda _: {"B": TWO}), FakeModel(refusal=UnavailableError("it is away"))
    asked = ask(EnsembleScheduler(CHAIN, models), {"A": ONE})
    error = asked.failure
    assert (type(error), error.message) == (UnavailableError, "in ensemble 'ens', it is away")


def test_steps_beside_one_that_fails_are_cancelled() -> None:
    left, right, join = FakeModel(), FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(FORK, [left, right, join]), {"A": ONE})
    left.streams[0].fail(NotFoundError("no"))
    assert (right.cancelled, join.requests) == ([0], [])
    right.reply(R=ONE)  # too late
    assert asked.taken() == []


@pytest.mark.contract("ME-28")
def test_a_failure_is_counted_twice_as_in_the_real_server() -> None:
    first, _, asked = _chain()
    first.streams[0].fail(RejectedError("queue full"))
    assert asked.statistics.fail.count == 2
    assert asked.statistics.failures == {FailureReason.OTHER: 2}
    assert (asked.statistics.success.count, asked.statistics.in_flight) == (0, 0)


# -- cancellation --------------------------------------------------------------------------------


@pytest.mark.contract("E-13")
def test_closing_the_stream_cancels_what_runs() -> None:
    left, right, join = FakeModel(), FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(FORK, [left, right, join]), {"A": ONE})
    left.reply(L=ONE)
    asked.stream.close()
    assert (left.cancelled, right.cancelled) == ([], [0])
    right.reply(R=ONE)
    assert join.requests == []
    assert asked.statistics.failures == {FailureReason.CANCELED: 1}
    assert asked.statistics.in_flight == 0


def test_a_request_that_is_cancelled_leaves_others_alone() -> None:
    first, second = FakeModel(), FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, second])
    gone, stays = ask(scheduler, {"A": ONE}), ask(scheduler, {"A": TWO})
    gone.stream.close()
    first.reply(B=TWO)
    second.reply(C=THREE)
    assert stays.taken() == [{"C": [3]}]


def test_abandoning_fails_all_that_are_on_their_way() -> None:
    first = FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, FakeModel()])
    asked = [ask(scheduler, {"A": ONE}) for _ in range(3)]
    scheduler.abandon(UnavailableError("the end"))
    texts = [one.failure.message for one in asked]
    assert texts == ["in ensemble 'ens', the end"] * 3
    assert first.running == 0


async def test_draining_waits_for_nothing() -> None:
    with raises_nothing():
        await EnsembleScheduler(CHAIN, [FakeModel(), FakeModel()]).drain()


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.contract("E-15", "ME-07")
def test_compute_times_are_the_sums_of_the_steps() -> None:
    first, second, asked = _chain()
    assert asked.statistics.pending == 0  # an ensemble has no queue
    first.reply(B=TWO)
    second.reply(C=THREE)
    statistics = asked.statistics
    times = (statistics.compute_input, statistics.compute_infer, statistics.compute_output)
    assert [(time.count, time.ns) for time in times] == [(1, 2), (1, 4), (1, 6)]
    assert (statistics.success.count, statistics.execution_count) == (1, 1)
    assert statistics.batches[1].compute_infer.ns == 4


def test_a_stream_that_was_closed_by_the_reader_is_an_error_of_that_kind() -> None:
    _, _, asked = _chain()
    asked.stream.close()
    assert isinstance(asked.failure, RequestCancelledError)


# -- memory of inputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_inputs_in_memory_of_one_reader_lose_their_place_and_others_keep_it(
    is_exclusive: bool,
) -> None:
    """No step may overwrite what another reads."""

    class Memory(Region):
        @property
        def exclusive(self) -> bool:
            return is_exclusive

        def slice(self, offset: int, size: int) -> RegionSlice:
            return HostSlice(self, offset, memoryview(bytearray(size)))

    place = Memory(1, "r", 4).slice(0, 4)
    given = Tensor(ONE.datatype, ONE.shape, ONE.buffer, place)
    left, right, join = FakeModel(), FakeModel(), FakeModel()
    ask(EnsembleScheduler(FORK, [left, right, join]), {"A": given})
    for model in (left, right):
        (request,) = model.requests
        arrived = request.inputs["A"]
        assert arrived.numpy().tolist() == [1]
        assert arrived.shared is (None if is_exclusive else place)

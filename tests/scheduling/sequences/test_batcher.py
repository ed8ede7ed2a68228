"""The waiting around the table, with instances that keep what they see. Times are virtual."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import in_virtual_time, make_response, turns
from penstock.core.config import ModelConfig, State, StrategyOldest
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.inference import Inference
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from scheduling.sequences.scene import (
    Recorder,
    Scene,
    config,
    direct,
    oldest,
    outcome,
    outcomes,
)

BOTH = pytest.mark.parametrize("model", [direct(), oldest()], ids=["direct", "oldest"])

# -- admission -----------------------------------------------------------------------------------


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


# -- control tensors -----------------------------------------------------------------------------


@pytest.mark.contract("S-11", "S-12")
@BOTH
async def test_a_model_is_told_where_in_its_sequence_a_request_is(model: ModelConfig) -> None:
    scene = Scene(model)
    await outcomes([*scene.send_all(5, "abc"), *scene.send_all(6, "d")])
    rows = [row for batch in scene.instance.batches for row in batch]
    told = {row.id: (row.start, row.end, row.ready, row.corrid) for row in rows}
    assert told == {"a": (1, 0, 1, 5), "b": (0, 0, 1, 5), "c": (0, 1, 1, 5), "d": (1, 1, 1, 6)}


# -- the strategies ------------------------------------------------------------------------------


@BOTH
async def test_requests_of_several_sequences_make_a_batch(model: ModelConfig) -> None:
    scene = Scene(model)
    await outcomes([*scene.send_all(1, "ab"), *scene.send_all(2, "cd"), *scene.send_all(3, "ef")])
    assert scene.instance.ids == [["a", "c", "e"], ["b", "d", "f"]]


@pytest.mark.contract("S-13")
async def test_rows_are_slots_and_missing_requests_are_not_ready() -> None:
    scene = Scene(direct())
    for sequence, id in ((1, "a"), (2, "b"), (3, "c")):
        await outcome(scene.send(sequence, id, start=True))
    await outcome(scene.send(3, "d"))
    seen = [(row.id, row.ready, row.corrid) for row in scene.instance.batches[-1]]
    assert seen == [("", 0, 0), ("", 0, 0), ("d", 1, 3)]
    assert scene.instance.requests[-1][0].inputs["IN"].numpy().tolist() == [[0]]


@pytest.mark.contract("S-13")
async def test_empty_rows_are_nobodys_requests() -> None:
    scene = Scene(direct())
    await outcome(scene.send(1, "a", start=True))
    await outcome(scene.send(2, "b", start=True))
    assert scene.statistics.success.count == 2
    assert [*scene.statistics.batches] == [1, 2]


@pytest.mark.contract("S-13")
async def test_a_model_need_not_answer_empty_rows() -> None:
    seen: list[Inference] = []

    def answer(inference: Inference) -> InferenceResponse | None:
        seen.append(inference)
        is_empty = not inference.request.id
        return None if is_empty else make_response(inference.request.id, final=True)

    scene = Scene(direct(), Recorder(answer=answer))
    for sequence, id in ((1, "a"), (2, "b"), (2, "c")):
        assert await outcome(scene.send(sequence, id, start=id != "c")) == id
    await turns()
    assert all(inference.abandoned for inference in seen)


@pytest.mark.contract("S-13")
async def test_a_request_of_another_shape_waits_for_a_batch_of_its_own() -> None:
    scene = Scene(direct())
    both = [scene.send(1, "a", start=True), scene.send(2, "b", start=True, width=3)]
    assert await outcomes(both) == ["a", "b"]
    assert [[row.ready for row in batch] for batch in scene.instance.batches] == [[1], [0, 1]]


@pytest.mark.contract("S-13")
async def test_a_client_that_leaves_in_time_leaves_its_row_empty() -> None:
    scene = Scene(direct())
    leaving = scene.send(1, "a", start=True)
    staying = scene.send(2, "b", start=True)
    leaving.stream.close()
    assert await outcome(staying) == "b"
    assert [row.ready for row in scene.instance.batches[0]] == [0, 1]


@pytest.mark.contract("S-14")
@in_virtual_time
async def test_direct_waits_for_enough_slots_or_the_delay() -> None:
    model = direct(max_queue_delay_microseconds=2_000_000, minimum_slot_utilization=0.5)
    scene = Scene(model)
    scene.send(1, "a", start=True)
    await asyncio.sleep(1.0)
    scene.send(2, "b", start=True)
    await asyncio.sleep(0.5)
    scene.send(1, "c")
    await asyncio.sleep(5.0)
    assert (scene.instance.ids, scene.instance.began) == ([["a", "b"], ["c"]], [1.0, 3.5])


@pytest.mark.contract("S-15")
@in_virtual_time
async def test_oldest_waits_for_a_preferred_size_or_the_delay() -> None:
    scene = Scene(oldest(preferred_batch_size=(2,), max_queue_delay_microseconds=2_000_000))
    scene.send(1, "a", start=True)
    await asyncio.sleep(1.0)
    scene.send(2, "b", start=True)
    scene.send(2, "c")
    await asyncio.sleep(5.0)
    assert (scene.instance.ids, scene.instance.began) == ([["a", "b"], ["c"]], [1.0, 3.0])


@pytest.mark.contract("S-15")
@in_virtual_time
async def test_oldest_has_as_many_sequences_as_candidates() -> None:
    scene = Scene(oldest(max_candidate_sequences=2), Recorder(seconds=1.0))
    sent = [i for n in range(1, 4) for i in scene.send_all(n, f"{n}{n}")]
    assert await outcomes(sent) == [*"112233"]
    assert scene.instance.ids == [["1", "2"], ["1", "2"], ["3"], ["3"]]


@pytest.mark.contract("S-06")
async def test_without_batches_an_instance_has_one_slot() -> None:
    scene = Scene(config(rows=0))
    assert await outcomes([*scene.send_all(1, "ab"), *scene.send_all(2, "cd")]) == [*"abcd"]
    assert scene.instance.ids == [["a"], ["b"], ["c"], ["d"]]


@BOTH
@pytest.mark.parametrize("answers_first", [True, False])
async def test_the_next_request_waits_for_the_answer(
    model: ModelConfig, answers_first: bool
) -> None:
    late: list[Inference] = []

    def answer(inference: Inference) -> InferenceResponse | None:
        if inference.request.id != "a":
            return make_response(inference.request.id, final=True)
        late.append(inference)
        return None

    scene = Scene(model, Recorder(answer=answer, answers_first=answers_first))
    sent = scene.send_all(1, "ab")
    await asyncio.sleep(0.01)
    assert scene.instance.ids == [["a"]]
    late[0].stream.send(make_response("a", final=True))
    assert await outcomes(sent) == ["a", "b"]


# -- who leaves ----------------------------------------------------------------------------------


@pytest.mark.contract("S-10")
@BOTH
@in_virtual_time
async def test_whoever_leaves_takes_the_rest_of_the_sequence_along(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=1.0))
    sent = scene.send_all(1, "abcd")
    await turns()
    sent[2].stream.close()
    a, b, _, d = await outcomes(sent)
    assert (a, b) == ("a", "b")
    assert isinstance(d, RequestCancelledError)
    assert scene.instance.ids == [["a"], ["b"]]


@pytest.mark.contract("S-10")
@in_virtual_time
async def test_whoever_leaves_the_queue_of_an_instance_takes_the_rest_along() -> None:
    scene = Scene(oldest(), Recorder(seconds=1.0))
    busy = scene.send_all(1, "a")
    await turns()
    sent = scene.send_all(2, "bc")
    sent[0].stream.close()
    assert isinstance(await outcome(sent[1]), RequestCancelledError)
    assert (await outcomes(busy), scene.instance.ids) == (["a"], [["a"]])


@BOTH
@in_virtual_time
async def test_leaving_while_it_executes_breaks_nothing(model: ModelConfig) -> None:
    """The model has seen it, so the next one fits."""
    scene = Scene(model, Recorder(seconds=1.0))
    first, second = scene.send_all(1, "ab")
    await turns()
    first.stream.close()
    assert await outcome(second) == "b"


@pytest.mark.contract("S-10")
@pytest.mark.parametrize("model", [config(rows=0), oldest(max_candidate_sequences=1)])
@in_virtual_time
async def test_a_sequence_in_the_backlog_goes_with_one_of_its_requests(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=1.0))
    sent = scene.send_all(1, "a"), scene.send_all(2, "bc"), scene.send_all(3, "d")
    await turns()
    sent[1][0].stream.close()
    assert await outcomes([*sent[0], *sent[2]]) == ["a", "d"]
    assert isinstance(await outcome(sent[1][1]), RequestCancelledError)


@BOTH
async def test_abandoned_requests_are_told_why(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=60.0))
    sent = [*scene.send_all(1, "ab"), *scene.send_all(2, "c")]
    scene.batcher.abandon(UnavailableError("the model is gone"))
    errors = await outcomes(sent)
    assert {str(error) for error in errors} == {"the model is gone"}


@pytest.mark.contract("ME-07")
@BOTH
@in_virtual_time
async def test_what_waits_anywhere_is_pending(model: ModelConfig) -> None:
    scene = Scene(model, Recorder(seconds=1.0))
    sent = [i for n in range(1, 8) for i in scene.send_all(n, "ab")]
    await asyncio.sleep(0.5)
    executing = len(scene.instance.ids[0])
    assert scene.statistics.pending == len(sent) - executing
    await outcomes(sent)
    assert (scene.statistics.pending, scene.statistics.success.count) == (0, len(sent))


# -- time ----------------------------------------------------------------------------------------


@pytest.mark.contract("S-09")
@BOTH
@in_virtual_time
async def test_an_idle_sequence_has_to_be_started_again(model: ModelConfig) -> None:
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    await asyncio.sleep(0.9)
    await outcome(scene.send(1, "b"))
    await asyncio.sleep(1.1)
    with pytest.raises(InvalidRequestError, match="must specify the START flag"):
        scene.send(1, "c")


@pytest.mark.contract("S-09", "S-07")
@in_virtual_time
async def test_the_slot_of_an_idle_sequence_goes_to_the_backlog() -> None:
    scene = Scene(config(rows=0))
    await outcome(scene.send(1, "a", start=True))
    waiting = scene.send(2, "b", start=True)
    assert await outcome(waiting) == "b"
    assert scene.instance.began == [0.0, pytest.approx(1.0)]


@in_virtual_time
async def test_a_request_that_takes_long_does_not_make_its_sequence_idle() -> None:
    scene = Scene(direct(), Recorder(seconds=5.0))
    await outcome(scene.send(1, "a", start=True))
    assert await outcome(scene.send(1, "b")) == "b"


@pytest.mark.contract("S-08")
@in_virtual_time
async def test_a_sequence_gives_up_waiting_for_a_slot_after_its_timeout() -> None:
    scene = Scene(config(rows=0), Recorder(seconds=3.0))
    first = scene.send(1, "a", start=True)
    waiting = [scene.send(2, "b", start=True, timeout=2_000_000), scene.send(2, "c")]
    errors = await outcomes(waiting)
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    assert all(isinstance(error, RejectedError) for error in errors)
    assert str(errors[0]) == "timeout of the corresponding sequence has been expired"
    assert await outcome(first) == "a"


# -- instances that go down ----------------------------------------------------------------------


@BOTH
@in_virtual_time
async def test_sequences_are_lost_with_their_instance_and_say_so(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("x", seconds=1.0), Recorder("y", seconds=1.0))
    lost = [scene.send(1, "a", start=True), scene.send(1, "b")]
    kept = scene.send_all(2, "cd")
    await turns()
    scene.instances[0].die()
    assert [str(error) for error in await outcomes(lost)] == [
        "killed",
        "sequence 1 of model 'm' was lost when instance 'x' went down; it has to be started again",
    ]
    with pytest.raises(UnavailableError, match="sequence 1 of model 'm' was lost"):
        scene.send(1, "e")
    assert await outcomes([*kept, *scene.send_all(1, "fg")]) == [*"cdfg"]


@BOTH
@in_virtual_time
async def test_an_instance_that_comes_back_knows_none_of_its_sequences(model: ModelConfig) -> None:
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    scene.instance.die()
    scene.instance.come_back()
    with pytest.raises(UnavailableError, match="was lost when instance 'm_0' went down"):
        scene.send(1, "b")
    assert await outcomes(scene.send_all(1, "cd")) == ["c", "d"]


@BOTH
@in_virtual_time
async def test_new_sequences_wait_for_an_instance_that_comes_back(model: ModelConfig) -> None:
    scene = Scene(model)
    scene.instance.die()
    waiting = scene.send(1, "a", start=True)
    await turns()
    assert scene.instance.ids == []
    scene.instance.come_back()
    assert await outcome(waiting) == "a"


@BOTH
@in_virtual_time
async def test_an_instance_without_resources_has_not_forgotten_its_sequences(
    model: ModelConfig,
) -> None:
    """It is not available while others hold what it needs, and says so when they are done."""
    scene = Scene(model)
    await outcome(scene.send(1, "a", start=True))
    scene.instance.available = False
    waiting = scene.send(1, "b")
    await turns()
    assert scene.instance.ids == [["a"]]
    scene.instance.available = True
    assert scene.instance.on_available is not None
    scene.instance.on_available()
    assert await outcome(waiting) == "b"


async def test_what_was_lost_is_forgotten_in_time() -> None:
    scene = Scene(config(max_sequence_idle_microseconds=20_000))
    await outcome(scene.send(1, "a", start=True))
    scene.instance.die()
    scene.instance.come_back()
    scene.send(2, "b", start=True)
    await asyncio.sleep(0.1)
    with pytest.raises(InvalidRequestError, match="must specify the START flag"):
        scene.send(1, "c")


# -- instances that come and go ------------------------------------------------------------------


@pytest.mark.contract("S-23")
@BOTH
async def test_an_instance_that_goes_keeps_its_sequences_until_they_end(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("m_0"), Recorder("m_1"))
    await outcomes([scene.send(n, f"{n}a", start=True) for n in (1, 2)])
    scene.resize(1)
    vacated = asyncio.ensure_future(scene.batcher.vacated(scene.gone[0]))
    await outcomes([scene.send(3, "3a", start=True), scene.send(1, "1b")])
    assert not vacated.done()
    assert await outcome(scene.send(1, "1c", end=True)) == "1c"
    await asyncio.wait_for(vacated, 1)
    assert [
        [row.sequence for batch in i.batches for row in batch if row.ready] for i in scene.instances
    ] == [
        [1, 1, 1],
        [2, 3],
    ]


@BOTH
@in_virtual_time
async def test_an_idle_sequence_keeps_no_instance(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("m_0"), Recorder("m_1"))
    await outcome(scene.send(1, start=True))
    scene.resize(1)
    async with asyncio.timeout(1.2):
        await scene.batcher.vacated(scene.gone[0])


@BOTH
async def test_an_instance_that_dies_has_no_sequences_to_end(model: ModelConfig) -> None:
    scene = Scene(model, Recorder("m_0"), Recorder("m_1"))
    await outcome(scene.send(1, start=True))
    scene.resize(1)
    scene.instance.die()
    scene.instance.come_back()
    await asyncio.wait_for(scene.batcher.vacated(scene.gone[0]), 1)
    with pytest.raises(UnavailableError, match="was lost when instance 'm_0' went down"):
        scene.send(1)
    assert await outcomes(scene.send_all(1, "ab")) == ["a", "b"]


# -- all of it at once ---------------------------------------------------------------------------

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["start", "next", "next", "end", "leave", "wait", "die", "come back", "resize"]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


_COUNT = State("COUNT", "COUNT_OUT", DataType.INT32, (1,))


def _counting(inference: Inference) -> InferenceResponse:
    """One more in the state, if there is one."""
    outputs = {}
    if (count := inference.request.inputs.get("COUNT")) is not None:
        outputs["COUNT_OUT"] = Tensor.from_numpy(count.numpy() + 1)
    return InferenceResponse(outputs, {"mark": inference.request.id}, final=True)


@given(_STEPS, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.3]))
@settings(max_examples=200, deadline=None)
def test_every_request_ends_and_each_sequence_sees_its_own_in_order(
    steps: list[tuple[str, int]],
    is_direct: bool,
    has_state: bool,
    answers_first: bool,
    seconds: float,
) -> None:
    @in_virtual_time
    async def play() -> None:
        states = {"state": (_COUNT,)} if has_state else {}
        model = (
            config(rows=2, **states)
            if is_direct
            else config(oldest=StrategyOldest(max_candidate_sequences=2), **states)
        )
        instances = [
            Recorder(f"m_{n}", seconds=seconds, answers_first=answers_first, answer=_counting)
            for n in range(2)
        ]
        scene = Scene(model, *instances)
        scene.make = lambda name: Recorder(
            name, seconds=seconds, answers_first=answers_first, answer=_counting
        )
        sent = await _play(scene, steps)
        for instance in scene.instances:
            if not instance.available:
                instance.come_back()
        async with asyncio.timeout(100):
            await outcomes(sent)
        _check_order(scene, sent)
        await asyncio.sleep(10.0)
        assert [*scene.batcher._table.sequences] == []
        assert (scene.batcher._steps, scene.statistics.pending) == ({}, 0)
        async with asyncio.timeout(1):
            await scene.batcher.finished()
            for instance in scene.gone:
                await scene.batcher.vacated(instance)
        fresh = [i for n in range(10, 14) for i in scene.send_all(n, "xy")]
        assert await outcomes(fresh) == ["x", "y"] * 4
        await scene.batcher.drain()

    play()


async def _play(scene: Scene, steps: list[tuple[str, int]]) -> list[Inference]:
    sent: list[Inference] = []
    for verb, number in steps:
        if verb in ("start", "next", "end"):
            sent += _sent(scene, verb, number, str(len(sent)))
        elif verb == "leave" and sent:
            sent[-1 - number % len(sent)].stream.close()
        elif verb == "wait":
            await asyncio.sleep(0.1 * number)
        elif verb == "die" and scene.instances[number % 2].available:
            scene.instances[number % 2].die()
        elif verb == "come back" and not scene.instances[number % 2].available:
            scene.instances[number % 2].come_back()
        elif verb == "resize":
            scene.resize(number % 3)
        await turns(number % 3)
    return sent


def _sent(scene: Scene, verb: str, number: int, id: str) -> list[Inference]:
    flags: dict[str, Any] = {"start": verb == "start", "end": verb == "end"}
    try:
        return [scene.send(number + 1, id, **flags)]
    except InferenceError:
        return []


def _check_order(scene: Scene, sent: list[Inference]) -> None:
    """From its start on, each sequence saw its requests once, in order, on one instance.

    None of them came behind one that was missed, and each with the state of the one before.
    """
    seen: dict[tuple[int | str, int], list[tuple[int, str]]] = {}
    for instance in scene.instances:
        for batch in instance.batches:
            ready = [row for row in batch if row.ready]
            for row in ready:
                assert row.corrid == row.sequence
                life = _start_of(sent, row.sequence, int(row.id))
                rows = seen.setdefault((row.sequence, life), [])
                assert row.count in (None, len(rows))
                rows.append((int(row.id), instance.name))
    for (sequence, life), rows in seen.items():
        numbers = [number for number, _ in rows]
        owed = [n for n, i in enumerate(sent) if _id(i) == sequence]
        assert numbers == [n for n in owed if _start_of(sent, sequence, n) == life][: len(numbers)]
        assert len({name for _, name in rows}) == 1
    executed = {number for rows in seen.values() for number, _ in rows}
    assert {n for n, inference in enumerate(sent) if inference.stream.error is None} <= executed


def _start_of(sent: list[Inference], sequence: int | str, number: int) -> int:
    """The request that began the sequence of this one."""
    while not (sent[number].request.sequence_start and _id(sent[number]) == sequence):
        number -= 1
    return number


def _id(inference: Inference) -> int | str:
    return inference.request.correlation_id

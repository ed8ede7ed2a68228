"""Rows, slots and batches of the two strategies. Times are virtual."""

from __future__ import annotations

import asyncio

import pytest

from fakes import in_virtual_time, make_response, turns
from penstock.core.config import ModelConfig
from penstock.core.request import InferenceResponse
from penstock.inflight.inference import Inference
from scheduling.sequences.scene import (
    BOTH,
    Recorder,
    Scene,
    config,
    direct,
    oldest,
    outcome,
    outcomes,
)


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
    await turns()
    assert scene.instance.ids == [["a"]]
    late[0].stream.send(make_response("a", final=True))
    assert await outcomes(sent) == ["a", "b"]


# -- the first batch, for tests ----------------------------------------------------------------


@pytest.mark.contract("D-20")
@BOTH
async def test_the_first_batch_waits_for_the_number_in_the_environment(
    model: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    scene = Scene(model)
    for sequence, id in ((1, "a"), (2, "b"), (3, "c"), (4, "d")):
        scene.send(sequence, id, start=True, end=True)
        await turns()
    assert scene.instance.ids == [["a", "b", "c"], ["d"]]


@pytest.mark.contract("D-20")
async def test_the_first_batch_of_rows_waits_for_the_requests_of_all_instances_and_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    scene = Scene(direct(), Recorder("m_0"), Recorder("m_1"))
    for sequence, id in ((1, "a"), (2, "b")):
        scene.send(sequence, id, start=True)
        await turns()
    assert [instance.ids for instance in scene.instances] == [[], []]
    scene.send(1, "c", end=True)
    await turns()
    assert [instance.ids for instance in scene.instances] == [[["a"], ["c"]], [["b"]]]


@pytest.mark.contract("D-20")
@pytest.mark.parametrize("queued", ["1", "2"])
async def test_the_first_batch_of_rows_waits_for_a_backlog(
    monkeypatch: pytest.MonkeyPatch, queued: str
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", queued)
    monkeypatch.setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2")
    scene = Scene(config(rows=2))
    for sequence, id in ((1, "a"), (2, "b"), (3, "c")):
        scene.send(sequence, id, start=True, end=True)
        await turns()
    assert scene.instance.ids == []
    scene.send(4, "d", start=True, end=True)
    await turns(20)
    assert scene.instance.ids == [["a", "b"], ["c", "d"]]


@pytest.mark.contract("D-20")
async def test_the_oldest_requests_wait_for_no_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do rows for a backlog alone."""
    monkeypatch.setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "2")
    by_row = Scene(direct())
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "1")
    by_age = Scene(oldest(max_candidate_sequences=1))
    for scene in (by_row, by_age):
        scene.send(1, "a", start=True, end=True)
    await turns()
    assert (by_row.instance.ids, by_age.instance.ids) == ([["a"]], [["a"]])

"""Every request ends, and each sequence executes its own requests, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import in_virtual_time, turns
from harness.examples import examples
from penstock.core.config import SequenceState, StrategyOldest
from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.inference import Inference
from scheduling.sequences.scene import Recorder, Scene, config, outcomes

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["start", "next", "next", "end", "leave", "wait", "die", "come back", "resize"]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


_COUNT = SequenceState("COUNT", "COUNT_OUT", DataType.INT32, (1,))


def _counting(inference: Inference) -> InferenceResponse:
    """One more in the state, if there is one."""
    outputs = {}
    if (count := inference.request.inputs.get("COUNT")) is not None:
        outputs["COUNT_OUT"] = Tensor.from_numpy(count.numpy() + 1)
    return InferenceResponse(outputs, {"mark": inference.request.id}, final=True)


@pytest.mark.slow
@given(_STEPS, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.3]))
@settings(max_examples=examples(200), deadline=None)
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

"""Computations in slices, which leave the event loop to others between two steps."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise

import pytest

from penstock.core.turns import (
    LoopTurn,
    Ration,
    Sliced,
    Steps,
    SwitchInterval,
    Turns,
    begun,
    finished,
)


class Work:
    """Computations that note when they run: `done` are their names, step by step."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def steps(self, name: str, count: int) -> Steps[str]:
        for _ in range(count - 1):
            self.done.append(name)
            yield
        self.done.append(name)
        return name


async def _turns_of_loop(work: Work) -> list[int]:
    """The steps that have run after each turn of the loop, until there are no more."""
    seen: list[int] = []
    while len(seen) < 2 or seen[-1] != seen[-2]:
        await asyncio.sleep(0)
        seen.append(len(work.done))
    return seen


async def test_loop_runs_one_step_a_turn_however_many_compute() -> None:
    work, turns = Work(), Turns()
    tasks = [asyncio.ensure_future(turns.run(work.steps(str(n), 3))) for n in range(20)]
    seen = await _turns_of_loop(work)
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 1
    assert await asyncio.gather(*tasks) == [str(n) for n in range(20)]


async def test_those_who_compute_take_turns() -> None:
    work, turns = Work(), Turns()
    await asyncio.gather(*(turns.run(work.steps(name, 3)) for name in "abc"))
    assert work.done == [*"abcabcabc"]


async def test_cancelled_computation_leaves_its_neighbours_their_turns() -> None:
    work, turns = Work(), Turns()
    tasks = [asyncio.ensure_future(turns.run(work.steps(name, 9))) for name in "abc"]
    for _ in range(6):
        await asyncio.sleep(0)
    tasks[1].cancel()
    assert (await tasks[0], await tasks[2]) == ("a", "c")
    assert 0 < work.done.count("b") < 4


def test_one_step_is_enough_for_a_short_computation() -> None:
    assert begun(Work().steps("a", 1), Turns()) == "a"


async def test_result_of_a_long_one_comes_after_its_other_steps() -> None:
    work = Work()
    rest = begun(work.steps("a", 3), Turns())
    assert isinstance(rest, Sliced)
    assert work.done == ["a"]
    assert await rest.result() == "a"
    assert work.done == ["a"] * 3


def _failing(after: int) -> Steps[str]:
    for _ in range(after):
        yield
    raise ValueError("bad")


def test_error_of_the_first_step_is_raised_at_once() -> None:
    with pytest.raises(ValueError, match="bad"):
        begun(_failing(0), Turns())


async def test_error_of_a_later_step_is_that_of_the_result_and_of_nobody_else() -> None:
    turns = Turns()
    rest = begun(_failing(2), turns)
    assert isinstance(rest, Sliced)
    with pytest.raises(ValueError, match="bad"):
        await rest.result()
    assert await turns.run(Work().steps("a", 2)) == "a"


async def test_computation_may_be_a_part_of_another() -> None:
    def named(steps: Steps[str]) -> Steps[str]:
        name = yield from steps
        return f"<{name}>"

    rest = begun(Work().steps("a", 3), Turns())
    assert isinstance(rest, Sliced)
    assert await rest.within(named).result() == "<a>"


def test_all_steps_may_run_now() -> None:
    assert finished(Work().steps("a", 5)) == "a"


async def test_ration_is_for_all_together_and_for_one_turn_of_the_loop() -> None:
    ration, done = Ration(3), []

    async def work(number: int) -> None:
        for _ in range(2):
            if (turn := ration.take()) is not None:
                await turn
            done.append(number)

    tasks = [asyncio.ensure_future(work(number)) for number in range(10)]
    seen = [0]
    while len(done) < 20:
        await asyncio.sleep(0)
        seen.append(len(done))
    assert max(after - before for before, after in pairwise(seen)) == 3
    await asyncio.gather(*tasks)


async def test_ration_is_not_spent_on_those_who_have_left() -> None:
    ration = Ration(1)
    assert ration.take() is None
    left, staying = ration.take(), ration.take()
    assert left is not None
    left.cancel()
    await asyncio.sleep(0)
    assert staying is not None
    assert staying.done()


async def test_all_who_wait_for_the_ration_have_their_turn_though_nobody_takes_more() -> None:
    ration = Ration(1)
    waiting = [turn for _ in range(12) if (turn := ration.take()) is not None]
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert len(waiting) == 11


async def test_threads_get_pythons_lock_sooner_while_some_wait() -> None:
    """A loop that lets go of it every few milliseconds keeps them waiting for seconds else."""
    ration, usual = Ration(1), sys.getswitchinterval()
    while ration.take() is None:
        pass
    assert sys.getswitchinterval() == pytest.approx(0.001)
    for _ in range(10):
        await asyncio.sleep(0)
    assert sys.getswitchinterval() == usual


async def test_threads_get_pythons_lock_sooner_while_somebody_computes() -> None:
    seen = []

    def steps() -> Steps[None]:
        seen.append(sys.getswitchinterval())
        yield

    usual = sys.getswitchinterval()
    await Turns().run(steps())
    assert seen == [pytest.approx(0.001)]
    assert sys.getswitchinterval() == usual


async def test_the_interval_of_threads_is_usual_again_after_three_quiet_turns_and_not_before() -> (
    None
):
    ration, usual = Ration(1), sys.getswitchinterval()
    waiting = [ration.take() for _ in range(3)]
    seen = []
    for _ in range(8):
        await asyncio.sleep(0)
        seen.append(sys.getswitchinterval() == usual)
    assert all(turn is None or turn.done() for turn in waiting)
    assert seen == sorted(seen)
    assert 4 <= seen.index(True) <= 6


async def test_a_loop_that_nobody_waits_on_is_left_alone() -> None:
    """The ration is renewed once, and asks for no turns of the loop after that."""
    ration = Ration(2)
    assert [ration.take(), ration.take()] == [None, None]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [ration.take(), ration.take()] == [None, None]
    late = ration.take()
    assert late is not None
    await late


async def test_bytes_of_a_turn_are_over_at_its_room_and_free_in_the_next() -> None:
    turn = LoopTurn(10)
    seen = [turn.over]
    turn.spend(9)
    seen.append(turn.over)
    turn.spend(1)
    seen.append(turn.over)
    await asyncio.sleep(0)
    seen.append(turn.over)
    turn.spend(11)
    seen.append(turn.over)
    await asyncio.sleep(0)
    assert [*seen, turn.over] == [False, False, True, False, True, False]


def test_the_short_interval_ends_with_its_last_user() -> None:
    interval, usual = SwitchInterval(), sys.getswitchinterval()
    with interval.short():
        with interval.short():
            seen = [sys.getswitchinterval()]
        seen.append(sys.getswitchinterval())
    assert seen == [pytest.approx(0.001)] * 2
    assert sys.getswitchinterval() == usual

"""What is done for a load that finds no room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.residency.residents import MISSING, RESIDENTS
from penstock.models.residency.memory import Resident
from penstock.models.residency.turns import Step, Turn, lacks, next_step


def _model(name: str, **state: bool) -> Resident:
    given = {"evictable": False, **state}
    return Resident(name, {"": 10}, idle_seconds=1, load_seconds=1, **given)


_BUSY = _model("busy")
_RIPE = _model("ripe", ripe=True)
_IDLE = _model("idle", evictable=True, ripe=True)
_PINNED = _model("pinned", pinned=True)
_LEAVING = _model("leaving", leaving=True)


def test_idle_models_go_before_busy_ones() -> None:
    assert next_step([_RIPE, _IDLE], {"": 10}) == Turn(Step.GO, ("idle",))
    assert next_step([_RIPE, _IDLE], {"": 20}) == Turn(Step.GO, ("idle", "ripe"))


def test_a_busy_model_that_had_its_turn_goes_and_another_is_waited_for() -> None:
    assert next_step([_RIPE, _BUSY], {"": 10}) == Turn(Step.GO, ("ripe",))
    assert next_step([_BUSY], {"": 10}) == Turn(Step.WAIT)


def test_what_can_never_fit_is_known_unless_something_is_leaving() -> None:
    assert next_step([_PINNED, _BUSY], {"": 20}) == Turn(Step.NEVER)
    assert next_step([_PINNED, _BUSY], {"": 20}, loading=True) == Turn(Step.WAIT)
    assert next_step([_PINNED, _LEAVING], {"": 10}) == Turn(Step.WAIT)
    assert next_step([_PINNED, _LEAVING], {"": 20}) == Turn(Step.NEVER)


def test_no_further_busy_model_goes_for_what_is_leaving_already() -> None:
    assert next_step([_LEAVING, _RIPE], {"": 10}) == Turn(Step.WAIT)
    assert next_step([_LEAVING, _RIPE], {"": 20}) == Turn(Step.GO, ("ripe",))
    assert next_step([_LEAVING, _RIPE, _IDLE], {"": 10}) == Turn(Step.GO, ("idle",))


def test_what_is_leaving_and_calls_is_not_waited_for() -> None:
    own = {"leaving"}
    assert next_step([_LEAVING], {"": 10}, callers=own, stuck=own) == Turn(Step.REFUSE)
    assert next_step([_LEAVING], {"": 10}, stuck=own) == Turn(Step.LATER)
    assert next_step([_LEAVING, _RIPE], {"": 10}, stuck=own) == Turn(Step.GO, ("ripe",))


def test_a_caller_that_holds_what_its_call_needs_is_refused_and_others_are_not() -> None:
    own = {"busy"}
    refused = next_step([_PINNED, _BUSY], {"": 10}, callers=own, stuck=own)
    assert refused == Turn(Step.REFUSE)
    assert next_step([_PINNED, _BUSY], {"": 10}, stuck={"busy"}) == Turn(Step.LATER)
    waits = next_step([_model("other"), _BUSY], {"": 10}, callers=own, stuck=own)
    assert waits == Turn(Step.WAIT)
    stuck = _model("stuck", ripe=True)
    assert next_step([stuck], {"": 10}, callers={"stuck"}, stuck={"stuck"}) == Turn(Step.REFUSE)


@given(RESIDENTS, MISSING, st.sets(st.text()), st.sets(st.text()), st.booleans())
def test_nobody_waits_for_what_cannot_come(
    residents: list[Resident],
    missing: dict[str, int],
    callers: set[str],
    others: set[str],
    loading: bool,
) -> None:
    """A load that waits waits for models that are neither pinned nor wait themselves."""
    stuck = callers | others | {one.name for one in residents[::3]}
    turn = next_step(residents, missing, callers=callers, stuck=stuck, loading=loading)
    by_name = {one.name: one for one in residents}
    for name in turn.models:
        one = by_name[name]
        assert one.evictable or (one.ripe and name not in stuck)
    assert bool(turn.models) == (turn.step is Step.GO)
    if turn.step is Step.GO:
        leaving = [one for one in residents if one.leaving and one.name not in stuck]
        assert not lacks([*(by_name[name] for name in turn.models), *leaving], missing)
    if turn.step is Step.WAIT and not loading:
        free = [one for one in residents if not one.pinned and one.name not in stuck]
        assert not lacks(free, missing)
    if turn.step is Step.REFUSE:
        assert callers


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=2),
    st.lists(st.sampled_from("abcdef"), min_size=2, max_size=6),
)
def test_two_callers_never_wait_for_each_others_memory(
    sizes: dict[str, int], busy: list[str]
) -> None:
    """Of loads for models that call while nothing else is there, none is told to wait."""
    callers = {name for name in busy if name in sizes}
    residents = [
        Resident(name, {"": size}, 0, 1, evictable=False, ripe=True)
        for name, size in sizes.items()
        if name in callers
    ]
    for name in callers:
        step = next_step(residents, {"": 1}, callers={name}, stuck=callers).step
        assert step is Step.REFUSE

"""The rate limiter: limits hold, without starvation and without idle resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.outcomes import raises_nothing
from penstock.core.errors import ModelLoadError
from penstock.scheduling.rate_limiter import Limit, RateLimiter, Resource, ResourceClaim

GPU, OTHER = ("R", 0), ("R", 1)
TOTAL = ("T", None)


def turn(needs: dict[Resource, int], priority: int = 1) -> ResourceClaim:
    return ResourceClaim(needs, priority)


def limiter(*turns: ResourceClaim, limits: tuple[Limit, ...] = ()) -> RateLimiter:
    made = RateLimiter(limits)
    for one in turns:
        made.register(one)
    return made


def run(limits: RateLimiter, one: ResourceClaim) -> bool:
    """Run if that is possible."""
    possible = limits.may_run(one)
    if possible:
        limits.acquire(one)
    return possible


class Model:
    """An instance that always has something to run, and how often it ran."""

    def __init__(self, limits: RateLimiter, one: ResourceClaim) -> None:
        self.turn = one
        self.running = False
        self.runs = 0
        self._limits = limits
        one.on_offer = self.dispatch
        limits.register(one)

    def dispatch(self) -> None:
        if not self.running and run(self._limits, self.turn):
            self.running = True
            self.runs += 1

    def finish(self) -> None:
        """As an instance does: its own queue gets in line before others are offered a turn."""
        self.running = False
        self._limits.release(self.turn)
        self.dispatch()
        self._limits.offer()


# -- resources -----------------------------------------------------------------------------------


@pytest.mark.contract("I-13", "I-16")
def test_there_is_as_much_as_the_neediest_asks_for() -> None:
    big, small = turn({GPU: 3}), turn({GPU: 1})
    limits = limiter(big, small)
    assert run(limits, big)
    assert not run(limits, small)
    limits.release(big)
    assert run(limits, small)


@pytest.mark.contract("I-13")
def test_every_device_has_its_own() -> None:
    here, there = turn({GPU: 1}), turn({OTHER: 1})
    limits = limiter(here, there)
    assert run(limits, here)
    assert run(limits, there)


@pytest.mark.contract("I-13", "I-17")
def test_a_global_resource_is_that_of_all_devices_and_models() -> None:
    here, there = turn({TOTAL: 1}), turn({TOTAL: 1})
    limits = limiter(here, there)
    assert run(limits, here)
    assert not run(limits, there)


@pytest.mark.contract("I-16")
@pytest.mark.parametrize(
    ("limits", "needs", "limit"),
    [
        ((Limit("R", 2),), {GPU: 3}, 2),
        ((Limit("R", 5), Limit("R", 2, 0)), {GPU: 3}, 2),
        ((Limit("R", 5, 1),), {GPU: 3}, 0),
        ((Limit("other", 5),), {TOTAL: 1}, 0),
        ((Limit("T", 7, 3),), {TOTAL: 8}, 7),
    ],
)
def test_what_could_never_run_is_refused(
    limits: tuple[Limit, ...], needs: dict[Resource, int], limit: int
) -> None:
    ((name, _), need), *_ = needs.items()
    with pytest.raises(ModelLoadError) as refused:
        limiter(turn(needs), limits=limits)
    assert refused.value.message == (
        f'Resource count for "{name}" is limited to {limit} which will prevent scheduling of one '
        f"or more model instances, the minimum required count is {need}"
    )


@pytest.mark.contract("I-13")
def test_one_name_is_not_both_global_and_of_a_device() -> None:
    limits = limiter(turn({("X", None): 1}))
    text = 'Resource "X" is present as both global and device-specific resource in the model'
    with pytest.raises(ModelLoadError, match=text):
        limits.register(turn({("X", 0): 1}))


def test_what_was_refused_takes_no_part() -> None:
    limits = limiter(limits=(Limit("R", 2),))
    with pytest.raises(ModelLoadError):
        limits.register(turn({GPU: 3}))
    limits.register(turn({("R", 0): 2}))


def test_a_name_without_users_is_free_again() -> None:
    gone = turn({("X", None): 1})
    limits = limiter(gone)
    limits.unregister(gone)
    with raises_nothing():
        limits.register(turn({("X", 0): 1}))


def test_who_needs_nothing_always_runs() -> None:
    free, big = turn({("R", 0): 0}), turn({GPU: 3})
    limits = limiter(free, big)
    assert run(limits, big)
    assert run(limits, free)


# -- turns ---------------------------------------------------------------------------------------


def test_who_waits_is_offered_its_turn() -> None:
    limits = limiter()
    first, second = (Model(limits, turn({GPU: 1})) for _ in range(2))
    first.dispatch()
    second.dispatch()
    assert (first.running, second.running) == (True, False)
    first.finish()
    assert (first.running, second.running) == (False, True)


def test_a_large_need_is_not_passed_for_ever_by_small_ones() -> None:
    """The small ones that come later wait, although what they need is there."""
    big, small, late = turn({GPU: 2}), turn({GPU: 1}), turn({GPU: 1})
    limits = limiter(big, small, late)
    assert run(limits, small)
    assert not run(limits, big)
    assert not run(limits, late)
    limits.release(small)
    assert run(limits, big)


def test_who_needs_something_else_does_not_wait_behind_others() -> None:
    busy, blocked, free = turn({GPU: 1}), turn({GPU: 1}), turn({OTHER: 1})
    limits = limiter(busy, blocked, free)
    assert run(limits, busy)
    assert not run(limits, blocked)
    assert run(limits, free)


def test_a_claim_with_nothing_to_run_does_not_hold_up_others() -> None:
    """Its requests were cancelled while it waited."""
    limits = limiter()
    busy, other = Model(limits, turn({GPU: 1})), Model(limits, turn({GPU: 1}))
    gone = turn({GPU: 1})
    limits.register(gone)
    busy.dispatch()
    limits.may_run(gone)
    other.dispatch()
    busy.running = False
    limits.release(busy.turn)
    limits.offer()
    assert other.running


def test_a_removed_instance_does_not_hold_up_others() -> None:
    busy, gone, small = turn({GPU: 2}), turn({GPU: 2}), turn({GPU: 1})
    limits = limiter(busy, gone, small)
    assert run(limits, busy)
    assert not run(limits, gone)
    limits.release(busy)
    limits.unregister(gone)
    assert run(limits, small)


@pytest.mark.contract("I-14")
@pytest.mark.parametrize(("weights", "share"), [((1, 1), 1.0), ((1, 2), 2.0), ((2, 6), 3.0)])
def test_twice_the_priority_number_is_half_the_turns(
    weights: tuple[int, int], share: float
) -> None:
    limits = limiter()
    models = [Model(limits, turn({GPU: 1}, weight)) for weight in weights]
    for model in models:
        model.dispatch()
    for _ in range(600):
        next(model for model in models if model.running).finish()
    assert models[0].runs / models[1].runs == pytest.approx(share, rel=0.02)


@pytest.mark.contract("I-14")
@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ({"A": 1, "b": 2}, "AAbAAbAAbAAb"),
        ({"b": 2, "A": 1}, "AAbAAbAAbAAb"),
        ({"A": 1, "B": 1}, "ABABABABABAB"),
        ({"b": 2, "d": 2}, "bdbdbdbdbdbd"),
        ({"b": 2, "c": 3}, "bcbbcbcbbcbc"),
        ({"c": 3, "b": 2}, "bcbbcbcbbcbc"),
        ({"A": 1, "c": 3}, "AAAcAAAcAAAc"),
        ({"A": 1, "e": 5}, "AAAAAeAAAAAe"),
        ({"A": 1, "b": 2, "c": 3}, "AAbAcAbAAbcA"),
    ],
)
def test_the_run_that_would_end_first_by_weight_comes_first(
    weights: dict[str, int], order: str
) -> None:
    """And waiting costs no place. All are queued while another runs."""
    limits = limiter()
    models = {name: Model(limits, turn({GPU: 1}, weight)) for name, weight in weights.items()}
    other = Model(limits, turn({GPU: 1}))
    other.dispatch()
    for model in models.values():
        model.dispatch()
    other.running = False
    limits.release(other.turn)
    limits.offer()
    assert "".join(_turns(models, len(order))) == order


def _turns(models: dict[str, Model], count: int) -> Iterator[str]:
    for _ in range(count):
        (name,) = (name for name, model in models.items() if model.running)
        yield name
        models[name].finish()


@pytest.mark.contract("I-14")
def test_turns_with_other_resources_do_not_count() -> None:
    limits = limiter()
    elsewhere = Model(limits, turn({OTHER: 1}))
    models = {name: Model(limits, turn({GPU: 1}, n)) for name, n in {"A": 1, "b": 2}.items()}
    elsewhere.dispatch()
    for model in models.values():
        model.dispatch()
    names = []
    for name in _turns(models, 12):
        names.append(name)
        for _ in range(10):
            elsewhere.finish()
    assert "".join(names) == "AAbAAbAAbAAb"


def test_who_comes_late_does_not_get_all_turns_until_it_has_caught_up() -> None:
    limits = limiter()
    old = Model(limits, turn({GPU: 1}))
    for _ in range(100):
        old.dispatch()
        old.running = False
        limits.release(old.turn)
    new = Model(limits, turn({GPU: 1}))
    for model in (old, new):
        model.dispatch()
    before = old.runs
    for _ in range(20):
        next(model for model in (old, new) if model.running).finish()
    assert abs((old.runs - before) - new.runs) <= 1


def test_who_comes_during_a_heavy_run_does_not_begin_where_that_began() -> None:
    """The heavy one had waited since the others' first runs."""
    limits = limiter()
    models = {name: Model(limits, turn({GPU: 1}, n)) for name, n in {"A": 1, "e": 5}.items()}
    for model in models.values():
        model.dispatch()
    assert "".join(_turns(models, 5)) == "AAAAA"
    models["B"] = Model(limits, turn({GPU: 1}))
    models["B"].dispatch()
    assert "".join(_turns(models, 6)) == "eBABAB"


# -- in general ----------------------------------------------------------------------------------

_NEEDS = st.dictionaries(st.sampled_from([GPU, OTHER, TOTAL]), st.integers(0, 3), max_size=3)
_MODELS = st.lists(st.tuples(_NEEDS, st.integers(1, 4)), min_size=1, max_size=6)


def _used(models: list[Model]) -> Counter[Resource]:
    return sum((m.turn.needs for m in models if m.running), Counter())


@pytest.mark.contract("I-13", "I-14")
@given(_MODELS, st.lists(st.integers(0, 5), max_size=80))
def test_limits_hold_and_no_resource_is_left_idle(
    described: list[tuple[dict[Resource, int], int]], steps: list[int]
) -> None:
    limits = RateLimiter()
    models = [Model(limits, turn(needs, priority)) for needs, priority in described]
    resources: list[Resource] = [GPU, OTHER, TOTAL]
    capacity = {r: max(m.turn.needs[r] for m in models) for r in resources}
    for model in models:
        model.dispatch()
    for step in steps:
        running = [model for model in models if model.running]
        assert running
        running[step % len(running)].finish()
        used = _used(models)
        assert all(used[resource] <= capacity[resource] for resource in capacity)
        waiting = [model for model in models if not model.running]
        claimed: Counter[Resource] = Counter()
        for model in sorted(waiting, key=lambda model: model.turn.rank):
            short = [
                r for r, n in model.turn.needs.items() if used[r] + claimed[r] + n > capacity[r]
            ]
            assert short, "it waits for nothing"
            claimed += model.turn.needs


@pytest.mark.slow
@pytest.mark.contract("I-14")
@given(_MODELS)
def test_everybody_runs_as_often_as_its_priority_allows(
    described: list[tuple[dict[Resource, int], int]],
) -> None:
    """With everybody always busy, those who share a resource differ by their weights alone."""
    limits = RateLimiter()
    models = [Model(limits, turn({**needs, TOTAL: 1}, weight)) for needs, weight in described]
    for model in models:
        model.dispatch()
    for _ in range(60 * len(models)):
        next(model for model in models if model.running).finish()
    shares = [model.runs * model.turn.priority for model in models]
    assert max(shares) - min(shares) <= 2 * max(model.turn.priority for model in models)

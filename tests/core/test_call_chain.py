"""The wait-for graph: which nested calls would deadlock."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.call_chain import CallingInstance, Candidates, NestedCall, Wait, find_cycle

A, B, C = "a_0", "b_0", "c_0"


def callers(*names: str) -> list[CallingInstance]:
    return [CallingInstance(name) for name in names]


def pool(*instances: CallingInstance | None) -> Candidates:
    return lambda: instances


def waits(caller: CallingInstance, *instances: CallingInstance | None) -> Wait:
    """The caller is held by a call that one of these instances answers."""
    return Wait(NestedCall(caller, blocking=True), pool(*instances))


# -- by example ------------------------------------------------------------------------------------


def test_who_does_not_call_will_answer() -> None:
    a, b = callers(A, B)
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == []


def test_a_call_to_an_instance_that_waits_for_the_caller_is_a_cycle() -> None:
    a, b = callers(A, B)
    waits(b, a)
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == [b]


def test_a_circle_may_be_long() -> None:
    a, b, c = callers(A, B, C)
    waits(b, c)
    waits(c, a)
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == [b, c]


def test_an_instance_that_waits_for_a_running_one_is_not_in_a_cycle() -> None:
    a, b, c = callers(A, B, C)
    waits(b, c)
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == []


def test_one_instance_that_goes_on_is_enough() -> None:
    a, b, free = callers(A, B, C)
    waits(b, a)
    assert find_cycle(NestedCall(a, blocking=True), pool(b, free)) == []
    waits(free, a)
    assert set(find_cycle(NestedCall(a, blocking=True), pool(b, free))) == {b, free}


def test_an_instance_that_never_calls_goes_on() -> None:
    a, b = callers(A, B)
    waits(b, a)
    assert find_cycle(NestedCall(a, blocking=True), pool(b, None)) == []


def test_who_has_been_answered_goes_on() -> None:
    a, b = callers(A, B)
    waits(b, a).end()
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == []


def test_who_may_give_up_goes_on() -> None:
    a, b = callers(A, B)
    Wait(NestedCall(b), pool(a))
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == []


def test_a_request_that_is_executed_waits_for_no_other_instance() -> None:
    a, b, free = callers(A, B, C)
    of_a = waits(a, b, free)
    assert find_cycle(NestedCall(b, blocking=True), pool(a)) == []
    of_a.executor = b
    assert find_cycle(NestedCall(b, blocking=True), pool(a)) == [a]


def test_a_call_that_made_several_requests_may_end_with_each() -> None:
    """A step of an ensemble that fails ends the ensemble, however long the others take."""
    a, b, free = callers(A, B, C)
    call = NestedCall(b, blocking=True)
    Wait(call, pool(a))
    other = Wait(call, pool(free))
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == []
    other.end()
    assert find_cycle(NestedCall(a, blocking=True), pool(b)) == [b]


# -- in any order ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Request:
    """Waits for an instance of a model, or is in one; its caller is an instance by its number."""

    model: int
    caller: int
    wait: Wait
    place: int | None = None


@dataclass(slots=True)
class World:
    """Models with instances, each of which executes something all the time, and may call."""

    sizes: list[int]
    instances: list[CallingInstance] = field(default_factory=list)
    model_of: list[int] = field(default_factory=list)
    held: dict[int, Request] = field(default_factory=dict)  # by the caller

    def __post_init__(self) -> None:
        for model, size in enumerate(self.sizes):
            for number in range(size):
                self.instances.append(CallingInstance(f"{model}_{number}"))
                self.model_of.append(model)

    def pool(self, model: int) -> list[int]:
        return [n for n, other in enumerate(self.model_of) if other == model]

    def call(self, caller: int, model: int) -> bool:
        """Let an instance make a call unless it is refused; whether it was made."""
        call = NestedCall(self.instances[caller], blocking=True)
        members = pool(*(self.instances[n] for n in self.pool(model)))
        if self.pool(model) == [caller] or find_cycle(call, members):
            return False
        self.held[caller] = Request(model, caller, Wait(call, members))
        return True

    def take(self, instance: int) -> None:
        """An instance that is done with what it had takes a request that waits for its model."""
        for request in self.held.values():
            if request.place is None and request.model == self.model_of[instance]:
                request.place = instance
                request.wait.executor = self.instances[instance]
                return

    def finish(self, instance: int) -> None:
        """An instance answers what it has, if that was a call, and takes the next."""
        for caller, request in list(self.held.items()):
            if request.place == instance:
                request.wait.end()
                del self.held[caller]
        self.take(instance)

    def free(self) -> set[int]:
        """The instances that do something; the others wait for an answer."""
        return set(range(len(self.instances))) - self.held.keys()

    def answerable(self) -> set[int]:
        """The instances that go on sooner or later, found by letting everybody go on who can."""
        going = self.free()
        while True:
            more = {
                caller
                for caller, request in self.held.items()
                if (request.place in going)
                or (request.place is None and not going.isdisjoint(self.pool(request.model)))
            }
            if more <= going:
                return going
            going |= more


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 99), st.integers(0, 99)), max_size=60)


@given(st.lists(st.integers(1, 3), min_size=2, max_size=5), steps)
def test_a_call_is_refused_just_when_it_could_never_be_answered(
    sizes: list[int], events: list[tuple[bool, int, int]]
) -> None:
    world = World(sizes)
    for calls, who, what in events:
        free = sorted(world.free())
        instance, model = free[who % len(free)], what % len(sizes)
        if not calls:
            world.finish(instance)
        elif not world.call(instance, model):
            world.held[instance] = Request(
                model, instance, Wait(NestedCall(CallingInstance("")), tuple)
            )
            assert instance not in world.answerable()
            del world.held[instance]
        assert world.answerable() == set(range(len(world.instances)))

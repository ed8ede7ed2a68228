"""Whatever the graph and the order of events: every step runs once per set of inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import examples
from penstock.core.errors import NotFoundError
from penstock.scheduling.ensembles.plan import EnsemblePlan, PlannedStep
from penstock.scheduling.ensembles.scheduler import EnsembleScheduler
from scheduling.ensembles.fake_models import Asked, FakeModel, ask, plan, step, tensor

REQUESTS = 3
RESPONSES = 3


@dataclass
class Graph:
    """A random ensemble: `made_of` names the tensors that each tensor is made of."""

    plan: EnsemblePlan
    made_of: dict[str, list[str]]

    def value(self, name: str, inputs: dict[str, int]) -> int:
        """What a tensor must be: its own number and the sum of what it is made of."""
        if name not in self.made_of:
            return inputs[name]
        parts = sum(self.value(part, inputs) for part in self.made_of[name])
        return (parts * 7 + int(name[1:])) % 1_000_003


@st.composite
def graphs(draw: st.DrawFn, *, decoupled: bool = False) -> Graph:
    """Steps in a random order; every tensor is used by a step or is an output."""
    known = ["T0", "T1"]
    made_of: dict[str, list[str]] = {}
    steps: list[PlannedStep] = []
    if decoupled:
        known = ["T2"]
        made_of["T2"] = ["T0", "T1"]
        steps.append(step("m0", "T0 T1", "T2", decoupled=True))
    for number in range(draw(st.integers(1, 6))):
        inputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        made = [f"T{len(made_of) + 2 + at}" for at in range(draw(st.integers(1, 2)))]
        made_of.update(dict.fromkeys(made, inputs))
        steps.append(step(f"s{number}", " ".join(inputs), " ".join(made)))
        known += made
    used = {part for parts in made_of.values() for part in parts}
    outputs = [name for name in made_of if name not in used] or ["T2"]
    return Graph(plan(draw(st.permutations(steps)), " ".join(outputs)), made_of)


class House:
    """Models for a graph that compute what `Graph.value` expects, when they are told to."""

    def __init__(self, graph: Graph, limit: int = 0) -> None:
        self.graph = graph
        self.models = [FakeModel() for _ in graph.plan.steps]
        self.scheduler = EnsembleScheduler(graph.plan, self.models, limit)
        self.asked = [
            ask(self.scheduler, {"T0": tensor(n), "T1": tensor(n * 10)}) for n in range(REQUESTS)
        ]

    def running(self) -> list[tuple[int, int]]:
        """Calls that wait for an answer: number of the step and of the call."""
        return [
            (number, call)
            for number, model in enumerate(self.models)
            for call, stream in enumerate(model.streams)
            if not stream.ended
        ]

    def reply(self, number: int, call: int) -> None:
        """Answer a call; of a decoupled step with several responses."""
        one, model = self.graph.plan.steps[number], self.models[number]
        given = {name: int(t.numpy()[0]) for name, t in model.requests[call].inputs.items()}
        total = sum(given.values()) * 7
        made = {name: (total + int(name[1:])) % 1_000_003 for name in one.requested}
        if not one.decoupled:
            model.send(call, {name: tensor(value) for name, value in made.items()}, final=True)
            return
        for response in range(RESPONSES):
            outputs = {name: tensor(value + response) for name, value in made.items()}
            model.send(call, outputs, final=False)
        model.streams[call].end()

    def work(self, choices: Sequence[int]) -> None:
        """Answer everything, in an order of choice."""
        at = 0
        while running := self.running():
            self.reply(*running[choices[at % len(choices)] % len(running)])
            at += 1


def _values(asked: Asked) -> list[dict[str, int]]:
    return [{name: value[0] for name, value in answer.items()} for answer in asked.taken()]


CHOICES = st.lists(st.integers(0, 1000), min_size=1, max_size=30)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(graphs(), CHOICES, st.integers(0, 2))
def test_every_request_gets_the_right_answer_whatever_the_order(
    graph: Graph, choices: list[int], limit: int
) -> None:
    house = House(graph, limit)
    house.work(choices)
    names = [output.name for output in graph.plan.outputs]
    for number, asked in enumerate(house.asked):
        inputs = {"T0": number, "T1": number * 10}
        assert _values(asked) == [{name: graph.value(name, inputs) for name in names}]
    assert {len(model.requests) for model in house.models} == {REQUESTS}


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(graphs(decoupled=True), CHOICES, st.integers(0, 2))
def test_every_response_of_a_decoupled_step_is_followed_up_once_and_in_order(
    graph: Graph, choices: list[int], limit: int
) -> None:
    house = House(graph, limit)
    house.work(choices)
    names = [output.name for output in graph.plan.outputs]
    for number, asked in enumerate(house.asked):
        first = graph.value("T2", {"T0": number, "T1": number * 10})
        expected = []
        for response in range(RESPONSES):
            rest = {name: of for name, of in graph.made_of.items() if name != "T2"}
            below = Graph(graph.plan, rest)
            expected.append({n: below.value(n, {"T2": first + response}) for n in names})
        assert _values(asked) == expected
        assert asked.stream.exhausted
    calls = Counter(len(model.requests) for model in house.models)
    assert calls == Counter({REQUESTS: 1, REQUESTS * RESPONSES: len(house.models) - 1})


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(graphs(), CHOICES, st.integers(0, 2), st.integers(0, 15), st.booleans())
def test_nothing_is_left_running_wherever_a_request_ends_early(
    graph: Graph, choices: list[int], limit: int, after: int, by_error: bool
) -> None:
    """One request is cancelled, or fails, after some events; the others do not notice."""
    house = House(graph, limit)
    for at in range(after):
        if running := house.running():
            house.reply(*running[choices[at % len(choices)] % len(running)])
    victim = house.asked[1]
    if by_error and (running := _running_of(house, victim)):
        number, call = running[0]
        house.models[number].streams[call].fail(NotFoundError("no"))
    victim.stream.close()
    assert not _running_of(house, victim)
    house.work(choices)
    assert house.running() == []
    assert not house.scheduler._ensemble.runs
    for number in (0, 2):
        inputs = {"T0": number, "T1": number * 10}
        names = [output.name for output in graph.plan.outputs]
        expected = [{name: graph.value(name, inputs) for name in names}]
        assert _values(house.asked[number]) == expected
    assert [one.statistics.in_flight for one in house.asked] == [0, 0, 0]


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(graphs(decoupled=True), CHOICES, st.integers(0, 2), st.integers(0, 15))
def test_nothing_is_left_running_of_a_decoupled_request_that_is_cancelled(
    graph: Graph, choices: list[int], limit: int, after: int
) -> None:
    house = House(graph, limit)
    for at in range(after):
        if running := house.running():
            house.reply(*running[choices[at % len(choices)] % len(running)])
    for asked in house.asked:
        asked.stream.close()
    assert house.running() == []
    assert not house.scheduler._ensemble.runs


def _running_of(house: House, asked: Asked) -> list[tuple[int, int]]:
    """The calls that belong to a request, by its run."""
    runs = [run for run in house.scheduler._ensemble.runs if run._sink is asked.inference.stream]
    streams = {id(call._stream) for run in runs for call in run._calls}
    return [
        (number, call)
        for number, call in house.running()
        if id(house.models[number].streams[call]) in streams
    ]

"""Calls for different clients that cross: each executes a model for which the other waits."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from conformance.python_models.client import Answer, Client, Order, RefusedError, floats
from conformance.python_models.repository import PythonModel
from harness.serving import Served, wait_until

# Calls the first of the models that the parameter `path` names, with the rest of it as the path of
# that request, and what follows `@` as its id. A request with an id waits for a file of that name
# before it calls, so a test decides who calls when.
_HEAD = """
    import asyncio
    import json
    import os
    import threading
    import time

    import triton_python_backend_utils as pb_utils


    def ask(path, x):
        first, _, rest = path.partition(" ")
        model, _, id = first.partition("@")
        return pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)],
            request_id=id, parameters={"path": rest})


    def output(response):
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = os.path.dirname(args["model_repository"])

        def file(self, name):
            return os.path.join(self.directory, name)

        def begin(self, request):
            id = request.request_id()
            if id:
                open(self.file(id + ".begun"), "w").close()
                while not os.path.exists(self.file(id)):
                    time.sleep(0.002)
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            return x, json.loads(request.parameters() or "{}").get("path", "")

"""

_LINK = (
    _HEAD
    + """
        def execute(self, requests):
            return [self.respond(*self.begin(request)) for request in requests]

        def respond(self, x, path):
            y = 1 + output(ask(path, x).exec()) if path else x
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""
)

_PATIENT = (
    _HEAD
    + """
        async def execute(self, requests):
            return [await self.respond(*self.begin(request)) for request in requests]

        async def respond(self, x, path):
            if path:
                call = asyncio.ensure_future(ask(path, x).async_exec())
                open(self.file("called"), "w").close()
                while not os.path.exists(self.file("give_up")):
                    await asyncio.sleep(0.002)
                call.cancel()
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""
)

_THREADED = (
    _HEAD
    + """
        def execute(self, requests):
            return [self.respond(*self.begin(request)) for request in requests]

        def respond(self, x, path):
            if path:
                threading.Thread(target=ask(path, x).exec).start()
                open(self.file("called"), "w").close()
                while not os.path.exists(self.file("give_up")):
                    time.sleep(0.002)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""
)

# Answers what calls nobody after it has returned.
_LATE = (
    _HEAD
    + """
        def execute(self, requests):
            for request in requests:
                x, path = self.begin(request)
                sender = request.get_response_sender()
                if path:
                    self.answer(sender, output(ask(path, x).exec()))
                else:
                    threading.Thread(target=self.answer_later, args=(sender, x)).start()
            return [None for _ in requests]

        def answer_later(self, sender, x):
            open(self.file("called"), "w").close()
            while not os.path.exists(self.file("give_up")):
                time.sleep(0.002)
            self.answer(sender, x)

        def answer(self, sender, x):
            response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)

_ENSEMBLE = """
    platform: "ensemble"
    input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
    output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
    ensemble_scheduling {
      step [ { model_name: "b" model_version: -1
               input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } ]
    }
"""

MODELS = {
    "a": PythonModel(_LINK),
    "b": PythonModel(_LINK),
    "c": PythonModel(_LINK),
    "pair": PythonModel(_LINK, instances=2),
    "hasty": PythonModel(
        _LINK,
        config="dynamic_batching { default_queue_policy { default_timeout_microseconds: 300000 } }",
    ),
    "patient": PythonModel(_PATIENT),
    "threaded": PythonModel(_THREADED),
    "late": PythonModel(_LATE),
    "new": PythonModel(_LINK),
    "through": PythonModel(config=None, files={"../config.pbtxt": _ENSEMBLE}),
}


@pytest.fixture(autouse=True)
def _nothing_begun(repository: Path) -> None:
    for path in repository.iterdir():
        if path.is_file():
            path.unlink()


class Requests:
    """Requests of different clients that have all begun before the first of them calls."""

    def __init__(self, client: Client, repository: Path) -> None:
        self._client = client
        self._repository = repository
        self._orders: list[Order] = []

    def begin(self, model: str, path: str) -> str:
        """Have `model` executed; it will call the models of the path. Its id."""
        id = str(len(self._orders))
        x, parameters = {"X": floats(0)}, {"path": path}
        self._orders.append(self._client.begin(model, x, request_id=id, parameters=parameters))
        self.has_begun(id)
        return id

    def has_begun(self, id: str) -> None:
        wait_until((self._repository / f"{id}.begun").exists)

    def go_on(self, *ids: str) -> None:
        """Let the requests with these ids make their calls."""
        for id in ids:
            (self._repository / id).touch()

    def outcomes(self) -> list[float | str]:
        """What became of them: the number of calls that each took, or what the error says."""
        return [_outcome(order) for order in self._orders]


def _outcome(order: Order) -> float | str:
    try:
        answer: Answer = order.result()
    except RefusedError as error:
        return error.message
    return float(answer["Y"][0])


@pytest.fixture
def requests(client: Client, repository: Path) -> Requests:
    return Requests(client, repository)


def refusals(outcomes: list[float | str]) -> list[str]:
    return [outcome for outcome in outcomes if isinstance(outcome, str)]


# -- refused ---------------------------------------------------------------------------------------


def test_one_of_two_calls_that_cross_is_refused_and_the_other_answered(requests: Requests) -> None:
    requests.go_on(requests.begin("a", "b"), requests.begin("b", "a"))
    outcomes = requests.outcomes()
    (refusal,) = refusals(outcomes)
    assert "its every instance waits for that one: " in refusal
    assert [outcome for outcome in outcomes if outcome != refusal] == [1]


def test_one_call_of_a_ring_is_refused_and_the_others_answered(requests: Requests) -> None:
    a, b, c = requests.begin("a", "b"), requests.begin("b", "c"), requests.begin("c", "a")
    requests.go_on(a, b, c)
    assert len(refusals(requests.outcomes())) == 1


def test_calls_that_cross_by_way_of_an_ensemble_are_seen(requests: Requests) -> None:
    requests.go_on(requests.begin("a", "through"), requests.begin("b", "a"))
    assert len(refusals(requests.outcomes())) == 1


def test_call_is_refused_when_both_instances_wait_for_its_caller(requests: Requests) -> None:
    first, second = requests.begin("pair", "a"), requests.begin("pair", "a")
    requests.go_on(first, second, requests.begin("a", "pair"))
    assert len(refusals(requests.outcomes())) == 1


def test_call_is_refused_when_the_instance_that_has_been_chosen_waits(requests: Requests) -> None:
    """The other instance of the pair is free, but the request is in the one that waits."""
    requests.go_on(requests.begin("a", "pair@inner c"))
    requests.has_begun("inner")
    requests.go_on(requests.begin("c", "a"), "inner")
    assert len(refusals(requests.outcomes())) == 1


# -- answered --------------------------------------------------------------------------------------


def test_call_of_a_model_with_a_free_instance_is_answered(requests: Requests) -> None:
    requests.go_on(requests.begin("pair", "a"), requests.begin("a", "pair"))
    assert requests.outcomes() == [1, 1]


def test_call_of_a_model_whose_holder_goes_on_is_answered(requests: Requests) -> None:
    requests.go_on(requests.begin("a", "b"), requests.begin("b", "c"))
    assert requests.outcomes() == [1, 1]


@pytest.mark.parametrize("model", ["patient", "threaded"])
def test_call_that_an_instance_may_give_up_closes_no_circle(
    requests: Requests, server: Served, repository: Path, model: str
) -> None:
    patient, other = requests.begin(model, "b"), requests.begin("b", model)
    requests.go_on(patient)
    wait_until((repository / "called").exists)
    requests.go_on(other)
    wait_until(lambda: model in waiting(server))
    (repository / "give_up").touch()
    assert requests.outcomes() == [0, 1]


def test_request_whose_execution_has_returned_closes_no_circle(
    requests: Requests, server: Served, repository: Path
) -> None:
    """A model that has executed quickly would be sent its next request, which waits nowhere."""
    requests.go_on(requests.begin("new", "late"))
    wait_until((repository / "called").exists)
    requests.go_on(requests.begin("late", "new"))
    wait_until(lambda: "new" in waiting(server))
    (repository / "give_up").touch()
    assert requests.outcomes() == [1, 0]


def test_call_whose_time_in_the_queue_is_limited_closes_no_circle(
    requests: Requests, server: Served
) -> None:
    impatient, other = requests.begin("a", "hasty"), requests.begin("hasty", "a")
    requests.go_on(impatient)
    wait_until(lambda: "hasty" in waiting(server))
    requests.go_on(other)
    refused, answered = requests.outcomes()
    assert "Request timeout expired" in str(refused)
    assert answered == 1


def waiting(server: Served) -> list[str]:
    """The models that requests wait for."""
    with urllib.request.urlopen(server.metrics) as reply:
        lines = reply.read().decode().splitlines()
    pending = [line for line in lines if line.startswith("nv_inference_pending_request_count")]
    return [line.split('model="')[1].split('"')[0] for line in pending if float(line.split()[-1])]

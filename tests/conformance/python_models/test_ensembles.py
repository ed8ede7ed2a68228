"""Ensembles of Python models and of others, through the stock client and over HTTP."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.python_models.client import Answer, Client, floats
from conformance.python_models.repeat import REPEAT
from conformance.python_models.repository import DECOUPLED, PythonModel
from harness.serving import Served, wait_until

_DOUBLE = """
    import os
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            with open(os.path.join(args["model_repository"], "pid"), "w") as file:
                file.write(str(os.getpid()))

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x.size and x[0] == 13:
                error = pb_utils.TritonError("unlucky", pb_utils.TritonError.NOT_FOUND)
                return pb_utils.InferenceResponse(error=error)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)])
"""

# Counts up what it was given, in place, and sends that.
_IN_PLACE = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            x += 1
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""

_CALLER = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            inputs = [pb_utils.get_input_tensor_by_name(request, "X")]
            call = pb_utils.InferenceRequest(
                model_name="twice", requested_output_names=["Y"], inputs=inputs)
            answer = call.exec()
            if answer.has_error():
                return pb_utils.InferenceResponse(error=answer.error())
            return pb_utils.InferenceResponse(answer.output_tensors())
"""

# Answers how many of its calls run at the same time.
_CROWDED = """
    import asyncio
    import numpy as np
    from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


    class Crowded(Model):
        config = ModelConfig(
            input=(Input("X", DataType.FP32, dims=(-1,)),),
            output=(Output("Y", DataType.FP32, dims=(-1,)),),
        )

        def __init__(self):
            self.running = 0

        async def infer(self, request):
            self.running += 1
            running = self.running
            await asyncio.sleep(0.02)
            self.running -= 1
            return Response({"Y": np.array([running], np.float32)})
"""

_TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


@dataclass(frozen=True, slots=True)
class Chain(PythonModel):
    """An ensemble of models one behind the other."""

    models: tuple[str, ...] = ()

    def write(self, directory: Path) -> None:
        (directory / "1").mkdir()
        names = ["X", *(f"T{n}" for n in range(1, len(self.models))), "Y"]
        steps = (
            f'{{ model_name: "{model}" model_version: -1'
            f' input_map {{ key: "X" value: "{source}" }}'
            f' output_map {{ key: "Y" value: "{target}" }} }}'
            for model, source, target in zip(self.models, names[:-1], names[1:], strict=True)
        )
        text = f'platform: "ensemble" {_TENSORS} ensemble_scheduling {{ step [ {", ".join(steps)} ]'
        (directory / "config.pbtxt").write_text(f"{text} {self.config} }}")


@dataclass(frozen=True, slots=True)
class Fork(PythonModel):
    """An ensemble of two steps of one model that read the same input."""

    model: str = ""

    def write(self, directory: Path) -> None:
        (directory / "1").mkdir()
        steps = ", ".join(
            f'{{ model_name: "{self.model}" model_version: -1'
            f' input_map {{ key: "X" value: "X" }} output_map {{ key: "Y" value: "{target}" }} }}'
            for target in ("Y", "Z")
        )
        tensors = f'{_TENSORS} output [ {{ name: "Z" data_type: TYPE_FP32 dims: [ -1 ] }} ]'
        text = f'platform: "ensemble" {tensors} ensemble_scheduling {{ step [ {steps} ] }}'
        (directory / "config.pbtxt").write_text(text)


@dataclass(frozen=True, slots=True)
class Parts(PythonModel):
    """An ensemble whose outputs come from different steps, one of which reads that of another."""

    model: str = ""

    def write(self, directory: Path) -> None:
        (directory / "1").mkdir()
        steps = ", ".join(
            f'{{ model_name: "{self.model}" model_version: -1'
            f' input_map {{ key: "X" value: "{source}" }}'
            f' output_map {{ key: "Y" value: "{target}" }} }}'
            for source, target in (("X", "Y"), ("Y", "NEXT"), ("X", "SIDE"))
        )
        more = (f'output [ {{ name: "{n}" data_type: TYPE_FP32 dims: [ -1 ] }} ]' for n in _MORE)
        tensors = f"{_TENSORS} {' '.join(more)}"
        text = f'platform: "ensemble" {tensors} ensemble_scheduling {{ step [ {steps} ] }}'
        (directory / "config.pbtxt").write_text(text)


_MORE = ("NEXT", "SIDE")

MODELS: Mapping[str, PythonModel] = {
    "double": PythonModel(_DOUBLE),
    "repeat": PythonModel(REPEAT, config=DECOUPLED),
    "caller": PythonModel(_CALLER),
    "in_place": PythonModel(_IN_PLACE),
    "both": Fork(model="in_place"),
    "parts": Parts(model="double"),
    "twice": Chain(models=("double", "double")),
    "eight": Chain(models=("twice", "double")),
    "spread": Chain(models=("double", "repeat", "double")),
    "crowded": PythonModel(_CROWDED, config=None),
    "throttled": Chain(models=("repeat", "crowded"), config="max_inflight_requests: 2"),
    "bounded": Chain(models=("repeat", "double"), config="max_inflight_requests: 2"),
}


def _firsts(answers: list[Answer]) -> list[float]:
    return [float(answer["Y"][0]) for answer in answers]


@pytest.mark.contract("E-01", "E-21")
def test_steps_follow_each_other(client: Client) -> None:
    answer = client.infer("twice", {"X": floats(1, 2)})
    assert answer["Y"].tolist() == [4, 8]
    assert answer.parameters == {"sequence_id": 0, "sequence_start": False, "sequence_end": False}


def test_an_ensemble_may_be_a_step(client: Client) -> None:
    assert client.infer("eight", {"X": floats(1)})["Y"].tolist() == [8]


def test_large_tensors_go_through_all_steps(client: Client) -> None:
    """They are handed on from process to process."""
    large = np.arange(300_000, dtype=np.float32)
    for _ in range(3):
        assert np.array_equal(client.infer("eight", {"X": large})["Y"], large * 8)


def test_a_step_that_writes_to_its_input_changes_that_of_no_other(client: Client) -> None:
    large = np.arange(300_000, dtype=np.float32)
    for _ in range(4):
        answer = client.infer("both", {"X": large})
        assert np.array_equal(answer["Y"], large + 1)
        assert np.array_equal(answer["Z"], large + 1)


@pytest.mark.contract("E-20")
@pytest.mark.parametrize("wanted", [["Y"], ["NEXT"], ["SIDE"], ["SIDE", "Y"]], ids=" ".join)
@pytest.mark.parametrize("flavour", ["grpc", "http"])
def test_an_ensemble_gives_the_outputs_asked_for(
    server: Served, flavour: str, wanted: list[str]
) -> None:
    """Triton 2.51 answers "unexpected deadlock" where those of other steps are not wanted."""
    with Client(server.grpc if flavour == "grpc" else server.http, flavour) as client:
        outputs = client.infer("parts", {"X": floats(1)}, outputs=wanted).outputs
    found = {"Y": 2, "NEXT": 4, "SIDE": 2}
    assert {name: array.tolist() for name, array in outputs.items()} == {
        name: [found[name]] for name in wanted
    }


def test_a_model_may_call_an_ensemble(client: Client) -> None:
    assert client.infer("caller", {"X": floats(3)})["Y"].tolist() == [12]


@pytest.mark.contract("E-07")
def test_the_failure_of_a_step_has_its_code(client: Client) -> None:
    refused = client.refusal("eight", {"X": floats(13)})
    assert (refused.code, refused.message) == (
        "NOT_FOUND",
        "in ensemble 'eight', in ensemble 'twice', unlucky",
    )


def test_a_model_sees_the_failure_of_the_ensemble_that_it_called(client: Client) -> None:
    assert client.refusal("caller", {"X": floats(13)}).message == "in ensemble 'twice', unlucky"


@pytest.mark.contract("E-10", "DC-03")
def test_a_decoupled_step_spreads_out(client: Client) -> None:
    assert client.config("spread")["model_transaction_policy"] == {"decoupled": True}
    answers = client.answers("spread", {"X": floats(*range(20))})
    assert _firsts(answers) == [4 * n for n in range(20)]


@pytest.mark.contract("E-11")
def test_a_bounded_ensemble_gives_every_answer(client: Client) -> None:
    answers = client.answers("bounded", {"X": floats(*range(20, 70))})
    assert _firsts(answers) == [2 * n for n in range(20, 70)]


@pytest.mark.contract("E-11")
def test_calls_of_one_step_are_no_more_at_a_time_than_configured(client: Client) -> None:
    answers = client.answers("throttled", {"X": floats(*range(20))})
    assert max(_firsts(answers)) == 2


@pytest.mark.contract("E-10", "G-07")
def test_a_decoupled_ensemble_is_no_unary_model(client: Client) -> None:
    assert "decoupled transaction policy" in client.refusal("spread", {"X": floats(1)}).message


@pytest.mark.contract("E-13")
def test_a_client_that_leaves_cancels_the_step_that_runs(client: Client, repository: Path) -> None:
    order = client.stream("spread", {"X": floats()})
    assert _firsts([order.next_event() for _ in range(3)]) == [0, 2, 4]
    assert not (repository / "repeat" / "cancelled").exists()
    order.cancel()
    wait_until((repository / "repeat" / "cancelled").exists)


def test_ensembles_are_served_over_http(server: Served) -> None:
    reply = _post(server, "models/eight/infer", _request(2))
    assert reply["outputs"] == [{"name": "Y", "datatype": "FP32", "shape": [1], "data": [16.0]}]
    assert _post(server, "models/eight/generate", {"X": 3})["Y"] == 24


@pytest.mark.contract("E-15")
def test_statistics_are_the_sums_of_the_steps(client: Client, server: Served) -> None:
    before = {name: _statistics(server, name) for name in ("twice", "double")}
    client.infer("twice", {"X": floats(1)})
    after = {name: _statistics(server, name) for name in ("twice", "double")}
    grown = {name: _difference(after[name], before[name]) for name in after}
    assert (grown["twice"]["success"]["count"], grown["double"]["success"]["count"]) == (1, 2)
    for station in ("compute_input", "compute_infer", "compute_output"):
        assert grown["twice"][station]["ns"] == grown["double"][station]["ns"]


@pytest.mark.contract("H-05")
def test_an_ensemble_is_not_ready_while_one_of_its_models_is_not(
    client: Client, repository: Path
) -> None:
    """Its process is killed, and comes back."""
    assert client.ready("eight")
    os.kill(int((repository / "double" / "pid").read_text()), signal.SIGKILL)
    wait_until(lambda: not client.ready("eight"))
    wait_until(lambda: client.ready("eight"), 60)
    assert client.infer("eight", {"X": floats(1)})["Y"].tolist() == [8]


def _post(server: Served, path: str, body: Any) -> Any:
    request = urllib.request.Request(f"http://{server.http}/v2/{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def _request(value: float) -> Any:
    return {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [value]}]}


def _statistics(server: Served, model: str) -> Any:
    url = f"http://{server.http}/v2/models/{model}/stats"
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)["model_stats"][0]["inference_stats"]


def _difference(after: Any, before: Any) -> Any:
    return {
        name: {key: value[key] - before[name][key] for key in value}
        for name, value in after.items()
    }

"""One draw for a whole request: what models in Python call, and steps of ensembles, follow it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from harness.serving import serving
from models.releases.calls import Releases
from models.releases.repository import write_models

_TENSORS = """
max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
_ASKING = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X")
        total = {number}
        for _ in range(2):
            asked = pb_utils.InferenceRequest(
                model_name="inner", requested_output_names=["Y"], inputs=[x]
            ).exec()
            total = total * 10 + int(asked.output_tensors()[0].as_numpy()[0, 0])
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy() * 0 + total)])
"""
_STEP = """platform: "ensemble"
ensemble_scheduling { step [ {
  model_name: "asks-%d" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
} ] }
"""

_BOTH = """platform: "ensemble"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [
  { name: "A" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 1 ] }
]
max_batch_size: 4
ensemble_scheduling { step [ {
  model_name: "asks-1" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "A" }
}, {
  model_name: "asks-2" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "B" }
} ] }
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    folder = tmp_path_factory.mktemp("draws")
    repository = folder / "models"
    write_models(repository)
    for number in (1, 2):
        _write(repository / f"asks-{number}", 'backend: "python"', _ASKING.format(number=number))
        _write(repository / f"pipe-{number}", _STEP % number)
    (repository / "both" / "1").mkdir(parents=True)
    (repository / "both" / "config.pbtxt").write_text(_BOTH)
    flags = ("--model-control-mode=explicit", "--load-model=*")
    with serving(repository, folder / "log", *flags) as server:
        releases = Releases(server, repository)
        for name, targets in (("inner", ("old", "new")), ("outer", ("asks-1", "asks-2"))):
            _halves(releases, name, *targets)
        _halves(releases, "pipes", "pipe-1", "pipe-2")
        yield releases


def _write(model: Path, config: str, code: str = "") -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config + _TENSORS)
    if code:
        (model / "1" / "model.py").write_text(code)


def _halves(releases: Releases, name: str, first: str, second: str) -> None:
    targets = [{"model": first, "weight": 50}, {"model": second, "weight": 50}]
    assert releases.ask(f"/{name}", {"targets": targets}, "POST")["name"] == name


@pytest.mark.parametrize("alias", ["outer", "pipes"])
def test_all_that_belongs_to_a_request_takes_its_side(served: Releases, alias: str) -> None:
    with grpcclient.InferenceServerClient(served.served.grpc) as client:
        found = {int(client.infer(alias, _zero()).as_numpy("Y")[0, 0]) for _ in range(40)}
    assert found == {111, 222}


@pytest.mark.parametrize("model", ["asks-1", "pipe-1"])
def test_so_does_a_request_that_meets_its_first_alias_further_down(
    served: Releases, model: str
) -> None:
    with grpcclient.InferenceServerClient(served.served.grpc) as client:
        found = {int(client.infer(model, _zero()).as_numpy("Y")[0, 0]) for _ in range(40)}
    assert found == {111, 122}


def test_steps_of_an_ensemble_that_is_no_alias_take_the_same_side(served: Releases) -> None:
    with grpcclient.InferenceServerClient(served.served.grpc) as client:
        answers = [client.infer("both", _zero()) for _ in range(40)]
    found = {tuple(int(one.as_numpy(name)[0, 0]) for name in "AB") for one in answers}
    assert found == {(111, 211), (122, 222)}


def _zero() -> list[grpcclient.InferInput]:
    tensor = grpcclient.InferInput("X", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 1), np.float32))
    return [tensor]

"""Models that answer each request once, as their authors write them from the documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.python_models.client import Client, RefusedError, floats, ints, strings
from conformance.python_models.repository import PythonModel, parameter
from harness.serving import Served

_ADD_SUB = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
                b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
                outputs = pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)
                responses.append(pb_utils.InferenceResponse(output_tensors=list(outputs)))
            return responses
"""

_AUTO_COMPLETE = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(auto_complete_model_config):
            auto_complete_model_config.add_input(
                {"name": "X", "data_type": "TYPE_FP32", "dims": [4]})
            auto_complete_model_config.add_output(
                {"name": "Y", "data_type": "TYPE_FP32", "dims": [4]})
            auto_complete_model_config.set_max_batch_size(2)
            auto_complete_model_config.set_dynamic_batching()
            return auto_complete_model_config

        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", -t.as_numpy())])
                    for request in requests for t in request.inputs()]
"""

# Unpacks a greyscale image in a form of its own: width, height, then a byte for each pixel.
_PREPROCESSING = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                packed = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
                batch = np.stack([self.pixels(image) for image in packed.reshape(-1)])
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("PIXELS", batch)]))
            return responses

        def pixels(self, image):
            width, height = image[0], image[1]
            pixels = np.frombuffer(image, np.uint8, offset=2).reshape(height, width)
            return (pixels.astype(np.float32) / 127.5 - 1)[np.newaxis]
"""

_WHAT_IT_SEES = """
    import json
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.args = args

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            seen = {
                "args": self.args,
                "parameters": json.loads(request.parameters()),
                "request_id": request.request_id(),
                "correlation_id": request.correlation_id(),
                "flags": request.flags(),
                "timeout": request.timeout(),
                "requested": sorted(request.requested_output_names()),
                "model_name": request.model_name(),
                "directory": pb_utils.get_model_dir(),
            }
            text = np.array([json.dumps(seen)], np.object_)
            answered = {"text": "t", "int": 7, "float": 0.5, "bool": True}
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", text)], parameters=answered)
"""

_OPTIONAL = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                scale = pb_utils.get_input_tensor_by_name(request, "SCALE")
                factor = np.float32(10) if scale is None else scale.as_numpy()
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * factor)]))
            return responses
"""

# A model that is not decoupled may answer through senders, and leave out what it answered so.
_SENDER = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + 1)])
                if x[0] < 0:
                    responses.append(response)
                    continue
                sender = request.get_response_sender()
                sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                responses.append(None)
                if x[0] > 1:
                    sender.send(response)
            return responses
"""

_EMPTIES_THE_LIST = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            while requests:
                x = requests.pop().inputs()[0].as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
            return responses
"""

_TWO_INTS = "INPUT0:INT32[-1] INPUT1:INT32[-1]"

MODELS = {
    "add_sub": PythonModel(_ADD_SUB, _TWO_INTS, "OUTPUT0:INT32[-1] OUTPUT1:INT32[-1]"),
    "auto_complete": PythonModel(_AUTO_COMPLETE, config=None),
    "preprocessing": PythonModel(
        _PREPROCESSING, "IMAGE:STRING[1]", "PIXELS:FP32[1,-1,-1]", "max_batch_size: 8"
    ),
    "what_it_sees": PythonModel(_WHAT_IT_SEES, outputs="Y:STRING[1]", config=parameter("k", "v")),
    "optional": PythonModel(_OPTIONAL, "X:FP32[-1] SCALE:FP32[1]?"),
    "sender": PythonModel(_SENDER),
    "empties_the_list": PythonModel(_EMPTIES_THE_LIST),
}


@pytest.mark.contract("PY-01", "PY-04", "PY-44")
@pytest.mark.parametrize("flavour", ["grpc", "http"])
def test_add_sub_adds_and_subtracts(server: Served, flavour: str) -> None:
    a, b = ints(*range(16)), ints(*[1] * 16)
    with Client(getattr(server, flavour), flavour) as client:
        answer = client.infer("add_sub", {"INPUT0": a, "INPUT1": b})
    assert (answer["OUTPUT0"] == a + b).all()
    assert (answer["OUTPUT1"] == a - b).all()


def test_only_the_outputs_asked_for_come(client: Client) -> None:
    inputs = {"INPUT0": ints(1), "INPUT1": ints(2)}
    assert list(client.infer("add_sub", inputs, outputs=["OUTPUT1"]).outputs) == ["OUTPUT1"]


@pytest.mark.contract("R-02", "AC-09", "PY-02")
def test_auto_complete_makes_a_configuration_where_there_is_none(client: Client) -> None:
    config = client.config("auto_complete")
    assert config["max_batch_size"] == 2
    assert config["dynamic_batching"] == {"preferred_batch_size": [2]}
    answer = client.infer("auto_complete", {"X": floats(1, 2, 3, 4).reshape(1, 4)})
    assert answer["Y"].tolist() == [[-1, -2, -3, -4]]


def test_preprocessing_unpacks_a_batch_of_images(client: Client) -> None:
    black_and_white = b"\x02\x01\x00\xff"
    images = strings(black_and_white, black_and_white).reshape(2, 1)
    answer = client.infer("preprocessing", {"IMAGE": images})
    assert answer["PIXELS"].tolist() == [[[[-1, 1]]]] * 2


@pytest.mark.contract("PY-03", "PY-11")
def test_model_sees_the_request_and_where_it_lives(client: Client, repository: Path) -> None:
    answer = client.infer(
        "what_it_sees",
        request_id="my-id",
        sequence_id=3,
        sequence_start=True,
        timeout=5_000_000,
        parameters={"a": "text", "b": 2, "c": False},
    )
    seen = json.loads(answer["Y"][0])
    directory = repository / "what_it_sees"
    assert seen["args"]["model_repository"] == str(directory)
    assert seen["directory"] == str(directory / "1")
    config = json.loads(seen["args"].pop("model_config"))
    assert config["parameters"]["k"]["string_value"] == "v"
    assert seen["args"] == {
        "model_instance_kind": "CPU",
        "model_instance_name": "what_it_sees_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(directory),
        "model_version": "1",
        "model_name": "what_it_sees",
    }
    assert seen["parameters"] == {"a": "text", "b": 2, "c": False}
    assert (seen["request_id"], seen["model_name"]) == ("my-id", "what_it_sees")
    assert (seen["correlation_id"], seen["flags"], seen["timeout"]) == (3, 1, 5_000_000)
    assert seen["requested"] == ["Y"]


@pytest.mark.contract("GP-09", "PY-18")
def test_parameters_of_a_response_reach_the_client(client: Client) -> None:
    answered = client.infer("what_it_sees").parameters
    assert answered == {"text": "t", "int": 7, "float": 0.5, "bool": True}


@pytest.mark.contract("PY-39", "C-13")
def test_optional_input_may_be_missing(client: Client) -> None:
    x = floats(1, 2)
    assert client.infer("optional", {"X": x})["Y"].tolist() == [10, 20]
    assert client.infer("optional", {"X": x, "SCALE": floats(3)})["Y"].tolist() == [3, 6]


@pytest.mark.contract("PY-25")
def test_model_that_is_not_decoupled_answers_through_its_sender(client: Client) -> None:
    assert client.infer("sender", {"X": floats(-1)})["Y"].tolist() == [0]
    assert client.infer("sender", {"X": floats(1)})["Y"].tolist() == [2]


@pytest.mark.contract("PY-25")
def test_second_answer_of_such_a_model_is_refused_and_the_first_stays(client: Client) -> None:
    assert client.infer("sender", {"X": floats(2)})["Y"].tolist() == [3]
    assert client.infer("sender", {"X": floats(1)})["Y"].tolist() == [2]


@pytest.mark.contract("PY-04")
def test_model_may_do_with_the_list_of_requests_what_it_likes(client: Client) -> None:
    assert client.infer("empties_the_list", {"X": floats(1, 2)})["Y"].tolist() == [1, 2]


def test_request_that_the_model_does_not_know_is_refused(client: Client) -> None:
    with pytest.raises(RefusedError, match="unexpected inference input 'Z'"):
        client.infer("optional", {"X": floats(1), "Z": floats(1)})

"""Tensors on their way through a model: every datatype, any size, and whose memory it is."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import numpy as np
import pytest

from conformance.python_models.client import Array, Client, strings
from conformance.python_models.repository import DECOUPLED, PythonModel
from conformance.python_models.shared_memory import shared_memory
from harness.serving import Served

_DATATYPES = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 STRING".split()

_ECHO = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse(
                        [pb_utils.Tensor("OUT_" + tensor.name(), tensor.as_numpy())
                         for tensor in request.inputs()])
                    for request in requests]
"""

# Counts up what it was given, in place, and sends that.
_IN_PLACE = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            responses = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                x += 1
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
            return responses
"""

# Keeps the arrays of requests, with copies; answers how many still are what they were.
_KEEPER = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.kept = []

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if request.request_id() == "keep":
                self.kept.append((x, x.copy()))
            elif request.request_id() == "drop":
                self.kept = []
            same = sum((array == copy).all() for array, copy in self.kept)
            return pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", np.array([same, len(self.kept)], np.float32))])
"""

# Answers everybody out of the same memory.
_REUSED_OUTPUT = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.output = np.zeros(1 << 16, np.float32)

        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                for number in range(20):
                    self.output[:] = number
                    response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.output)])
                    sender.send(response)
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

# Returns its input, which it goes on writing to when the next request is there.
_SCRIBBLER = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.last = None

        def execute(self, requests):
            responses = []
            for request in requests:
                if self.last is not None:
                    self.last[:] = -1
                self.last = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.last)]))
            return responses
"""

# Strided, transposed, broadcast, of the other byte order.
_VIEWS = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            views = {
                "STRIDED": x[:, ::2],
                "TRANSPOSED": x.T,
                "BROADCAST": np.broadcast_to(x[:1, :1], (2, 3)),
                "SWAPPED": x.astype(x.dtype.newbyteorder()),
            }
            return pb_utils.InferenceResponse([pb_utils.Tensor(n, v) for n, v in views.items()])
"""

_DLPACK = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            tensor = pb_utils.get_input_tensor_by_name(request, "X")
            x = np.from_dlpack(tensor)
            assert np.shares_memory(x, tensor.as_numpy())
            assert tensor.__dlpack_device__() == (1, 0) and tensor.is_cpu()
            again = pb_utils.Tensor.from_dlpack("Y", tensor.to_dlpack())
            doubled = pb_utils.Tensor.from_dlpack("DOUBLED", 2 * x)
            return pb_utils.InferenceResponse([again, doubled])
"""

# Eight threads answer at once, each with its own number; threads change places all the time.
_CROWD = """
    import sys
    import threading
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            sys.setswitchinterval(1e-6)

        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                begin = threading.Barrier(8)
                threads = [threading.Thread(target=self.respond, args=(sender, n, begin))
                           for n in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

        def respond(self, sender, number, begin):
            begin.wait()
            for size in range(40):
                y = np.full(5000 + 700 * size, number, np.float32)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
"""

MODELS = {
    "echo": PythonModel(
        _ECHO,
        " ".join(f"{name}:{name}[-1,-1]?" for name in _DATATYPES),
        " ".join(f"OUT_{name}:{name}[-1,-1]" for name in _DATATYPES),
    ),
    "in_place": PythonModel(_IN_PLACE),
    "keeper": PythonModel(_KEEPER),
    "reused_output": PythonModel(_REUSED_OUTPUT, config=DECOUPLED),
    "scribbler": PythonModel(_SCRIBBLER),
    "views": PythonModel(
        _VIEWS,
        "X:INT32[-1,-1]",
        " ".join(f"{n}:INT32[-1,-1]" for n in ("STRIDED", "TRANSPOSED", "BROADCAST", "SWAPPED")),
    ),
    "dlpack": PythonModel(_DLPACK, outputs="Y:FP32[-1] DOUBLED:FP32[-1]"),
    "crowd": PythonModel(_CROWD, config=DECOUPLED),
}

_SIZES = {"inside the frame": 1 << 10, "in shared memory": 1 << 16, "large": 1 << 20}


def _values() -> dict[str, Array]:
    """Two rows of three elements in every datatype, with those that are easily lost."""
    numbers = np.array([[0, 1, 2], [3, 4, 127]])
    arrays = {name: numbers.astype(name.lower()) for name in _DATATYPES if "INT" in name}
    texts = strings("", "zero\0inside", "grüße", b"\xff\xfe", "a" * 70_000, "last")
    return {
        **arrays,
        "BOOL": numbers > 2,
        "FP16": np.array([[0, -0.0, 1.5], [65504, np.inf, 6e-8]], np.float16),
        "FP32": np.array([[0, -0.0, 1.5], [3e38, -np.inf, 1e-45]], np.float32),
        "FP64": np.array([[0, -0.0, 1.5], [1e308, np.inf, 5e-324]], np.float64),
        "STRING": texts.reshape(2, 3),
    }


# -- every datatype -------------------------------------------------------------------------------


@pytest.mark.contract("PY-21")
@pytest.mark.parametrize("flavour", ["grpc", "http"])
def test_every_datatype_comes_back_as_it_was(server: Served, flavour: str) -> None:
    values = _values()
    with Client(getattr(server, flavour), flavour) as client:
        answer = client.infer("echo", values)
    assert {name: _same(answer[f"OUT_{name}"], v) for name, v in values.items()} == dict.fromkeys(
        values, True
    )


def test_tensors_without_elements_come_back(client: Client) -> None:
    values = {name: value[:0] for name, value in _values().items()}
    answer = client.infer("echo", values)
    assert {answer[f"OUT_{name}"].shape for name in values} == {(0, 3)}


@pytest.mark.contract("N-08")
@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_tensors_without_elements_keep_their_datatypes(server: Served, binary: bool) -> None:
    """FP16 has no form in JSON."""
    sent = {name: name for name in _DATATYPES if binary or name != "FP16"}
    sent["STRING"] = "BYTES"
    data: Any = {"parameters": {"binary_data_size": 0}} if binary else {"data": []}
    inputs = [{"name": n, "datatype": t, "shape": [0, 3], **data} for n, t in sent.items()]
    body = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": binary}}).encode()
    asked = urllib.request.Request(f"http://{server.http}/v2/models/echo/infer", body)
    asked.add_header("inference-header-content-length", str(len(body)))
    with urllib.request.urlopen(asked, timeout=60) as answer:
        outputs = json.load(answer)["outputs"]
    assert {output["name"]: output["datatype"] for output in outputs} == {
        f"OUT_{name}": datatype for name, datatype in sent.items()
    }
    assert all(output["shape"] == [0, 3] for output in outputs)


def test_views_of_arrays_arrive_as_they_look(client: Client) -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    answer = client.infer("views", {"X": x})
    assert answer["STRIDED"].tolist() == x[:, ::2].tolist()
    assert answer["TRANSPOSED"].tolist() == x.T.tolist()
    assert answer["BROADCAST"].tolist() == [[0] * 3] * 2
    assert answer["SWAPPED"].tolist() == x.tolist()


@pytest.mark.contract("PY-21")
@pytest.mark.parametrize("size", _SIZES.values(), ids=_SIZES)
def test_dlpack_shares_the_memory_of_a_tensor(client: Client, size: int) -> None:
    x = np.arange(size // 4, dtype=np.float32)
    answer = client.infer("dlpack", {"X": x})
    assert _same(answer["Y"], x)
    assert _same(answer["DOUBLED"], 2 * x)


# -- size -----------------------------------------------------------------------------------------


@pytest.mark.contract("PY-38")
@pytest.mark.parametrize("mebibytes", [1, 64])
def test_large_tensor_is_changed_in_place_and_sent(client: Client, mebibytes: int) -> None:
    x = np.arange(mebibytes << 18, dtype=np.float32)
    assert _same(client.infer("in_place", {"X": x})["Y"], x + 1)


@pytest.mark.parametrize("size", _SIZES.values(), ids=_SIZES)
def test_input_is_writable_whatever_its_size(client: Client, size: int) -> None:
    x = np.zeros(size // 4, np.float32)
    assert _same(client.infer("in_place", {"X": x})["Y"], x + 1)


def test_shared_memory_does_not_grow_with_the_requests(client: Client, server: Served) -> None:
    x = np.zeros(1 << 18, np.float32)
    client.infer("in_place", {"X": x})
    before = shared_memory(server)
    for _ in range(100):
        client.infer("in_place", {"X": x})
    assert shared_memory(server) - before <= 4 << 20


# -- whose memory it is ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", _SIZES.values(), ids=_SIZES)
def test_answer_stays_what_it_was_when_its_model_writes_to_the_input(
    client: Client, size: int
) -> None:
    arrays = [np.full(size // 4, number, np.float32) for number in range(1, 30)]
    orders = [client.begin("scribbler", {"X": x}) for x in arrays]
    answers = [order.result()["Y"] for order in orders]
    assert [(a == x).all() for a, x in zip(answers, arrays, strict=True)] == [True] * 29


@pytest.mark.parametrize("size", _SIZES.values(), ids=_SIZES)
def test_array_that_a_model_keeps_is_not_written_over(client: Client, size: int) -> None:
    def ask(number: int, request_id: str) -> list[float]:
        x = np.full(size // 4, number, np.float32)
        kept: list[float] = client.infer("keeper", {"X": x}, request_id=request_id)["Y"].tolist()
        return kept

    for number in range(5):
        ask(number, "keep")
    for number in range(5, 30):
        ask(number, "")
    assert ask(30, "") == [5, 5]
    assert ask(31, "drop") == [0, 0]


def test_model_may_answer_out_of_the_same_memory_again_and_again(client: Client) -> None:
    answers = client.answers("reused_output")
    assert [sorted(set(answer["Y"].tolist())) for answer in answers] == [[n] for n in range(20)]


def test_threads_that_answer_at_once_do_not_mix_their_tensors(client: Client) -> None:
    answers = client.answers("crowd")
    assert len(answers) == 320
    assert all((answer["Y"] == answer["Y"][0]).all() for answer in answers)
    assert sorted(int(answer["Y"][0]) for answer in answers) == sorted(list(range(8)) * 40)


def _same(got: Array, expected: Array) -> bool:
    """Equal to the bit, in shape and datatype too."""
    if got.dtype.hasobject:
        return bool((got == expected).all())
    return got.dtype == expected.dtype and got.tobytes() == expected.tobytes()

"""Models as their authors write them from the public documentation, and their clients."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from conformance.python_models.client import Client, RefusedError, floats, ints, strings
from conformance.python_models.repository import DECOUPLED, PythonModel, parameter
from serving import Served, wait_until

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

# Sends the number as often as it says, from a thread; a response is only sent once `execute` has
# returned from the request after it.
_SQUARE = """
    import threading
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.released = threading.Event()  # by a negative number, which may overtake others

        def execute(self, requests):
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                if x[0] < 0:
                    self.released.set()
                arguments = request.get_response_sender(), abs(int(x[0]))
                threading.Thread(target=self.respond, args=arguments).start()
            return None

        def respond(self, sender, number):
            self.released.wait()
            for _ in range(number):
                tensor = pb_utils.Tensor("Y", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_REPEAT = """
    import json
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            config = json.loads(args["model_config"])
            if not pb_utils.using_decoupled_model_transaction_policy(config):
                raise pb_utils.TritonModelException("the model must be decoupled")
            dtype = pb_utils.get_output_config_by_name(config, "OUT")["data_type"]
            self.dtype = pb_utils.triton_string_to_numpy(dtype)

        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                delays = pb_utils.get_input_tensor_by_name(request, "DELAY").as_numpy()
                for index, (value, delay) in enumerate(zip(values, delays)):
                    time.sleep(delay / 1000)
                    idx = pb_utils.Tensor("IDX", np.array([index], np.uint32))
                    out = pb_utils.Tensor("OUT", np.array([value], self.dtype))
                    final = index == len(values) - 1
                    sender.send(pb_utils.InferenceResponse([idx, out]), flags=int(final))
            return None
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
                "requested": request.requested_output_names(),
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

# Two executions that can only end together.
_MEETING = """
    import asyncio
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.here, self.both = 0, None

        async def execute(self, requests):
            self.both = self.both or asyncio.Event()
            self.here += len(requests)
            if self.here >= 2:
                self.both.set()
            await self.both.wait()
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X")
                response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())])
                request.get_response_sender().send(
                    response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return None

        async def is_ready(self):
            await asyncio.sleep(0)
            return self.here != 1
"""

# Each instance waits until the other one executes too; files are how they know.
_PARALLEL = """
    import os
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.name, self.directory = args["model_instance_name"], args["model_repository"]

        def execute(self, requests):
            open(os.path.join(self.directory, self.name + ".here"), "w").close()
            while sum(name.endswith(".here") for name in os.listdir(self.directory)) < 2:
                time.sleep(0.002)
            answer = pb_utils.Tensor("Y", np.array([self.name], np.object_))
            return [pb_utils.InferenceResponse([answer]) for _ in requests]
"""

_READINESS = """
    import os
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.mood = os.path.join(args["model_repository"], "mood")

        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]

        %s is_ready(self):
            if not os.path.exists(self.mood):
                return True
            with open(self.mood) as file:
                mood = file.read()
            if mood == "raise":
                raise RuntimeError("no mood at all")
            return mood == "good"
"""

_PRINTING = """
    import sys
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            for _ in range(4096):
                print("o" * 1023)
                sys.stderr.write("e" * 1023 + "\\n")
            sys.stdout.flush()
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

_LOGGING = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            logger = pb_utils.Logger
            logger.log_info("an info from the model")
            logger.log_warn("a warning from the model")
            logger.log_error("an error from the model")
            logger.log_verbose("a detail from the model")
            logger.log("a line without a level")
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

# Answers odd numbers with an error, and tells everybody how many requests came together. The
# first request that it sees, it keeps until there is a file.
_BATCH = """
    import os
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.gate = os.path.join(args["model_repository"], "gate")

        def execute(self, requests):
            open(self.gate + ".begun", "w").close()
            while not os.path.exists(self.gate):
                time.sleep(0.002)
            return [self.respond(request, len(requests)) for request in requests]

        def respond(self, request, size):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if int(x[0, 0]) % 2:
                error = pb_utils.TritonError("odd", pb_utils.TritonError.INVALID_ARG)
                return pb_utils.InferenceResponse(error=error)
            y = np.full((len(x), 1), size, np.float32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""

# Sends without end, and leaves a file when it learns that nobody listens any more.
_ENDLESS = """
    import os
    import threading
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def execute(self, requests):
            for request in requests:
                threading.Thread(target=self.respond, args=(request,), daemon=True).start()
            return None

        def respond(self, request):
            sender, sent = request.get_response_sender(), 0
            while not sender.is_cancelled():
                tensor = pb_utils.Tensor("Y", np.array([sent], np.float32))
                sender.send(pb_utils.InferenceResponse([tensor]))
                sent += 1
            with open(os.path.join(self.directory, request.request_id()), "w") as file:
                file.write(str(sent))
            error = pb_utils.TritonError("stopped", pb_utils.TritonError.CANCELLED)
            flag = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            sender.send(pb_utils.InferenceResponse(error=error), flags=flag)
"""

_FILES = {
    "serve_this.py": """
        import model_wide
        import triton_python_backend_utils as pb_utils
        from beside import double
        from .below.deeper import shift


        class TritonPythonModel:
            def execute(self, requests):
                return [self.respond(request) for request in requests]

            def respond(self, request):
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                y = pb_utils.Tensor("Y", model_wide.negate(shift(double(x))))
                return pb_utils.InferenceResponse([y])
    """,
    "beside.py": "def double(x):\n    return 2 * x\n",
    "below/__init__.py": "",
    "below/deeper.py": "from .amount import AMOUNT\n\n\ndef shift(x):\n    return x + AMOUNT\n",
    "below/amount.py": "AMOUNT = 1\n",
    "../model_wide.py": "def negate(x):\n    return -x\n",
}

_TWO_INTS = "INPUT0:INT32[-1] INPUT1:INT32[-1]"

MODELS = {
    "add_sub": PythonModel(_ADD_SUB, _TWO_INTS, "OUTPUT0:INT32[-1] OUTPUT1:INT32[-1]"),
    "square": PythonModel(_SQUARE, "X:INT32[1]", "Y:INT32[1]", DECOUPLED),
    "repeat": PythonModel(
        _REPEAT, "IN:INT32[-1] DELAY:UINT32[-1]", "OUT:INT32[1] IDX:UINT32[1]", DECOUPLED
    ),
    "auto_complete": PythonModel(_AUTO_COMPLETE, config=None),
    "preprocessing": PythonModel(
        _PREPROCESSING, "IMAGE:STRING[1]", "PIXELS:FP32[1,-1,-1]", "max_batch_size: 8"
    ),
    "what_it_sees": PythonModel(_WHAT_IT_SEES, outputs="Y:STRING[1]", config=parameter("k", "v")),
    "optional": PythonModel(_OPTIONAL, "X:FP32[-1] SCALE:FP32[1]?"),
    "sender": PythonModel(_SENDER),
    "meeting": PythonModel(_MEETING, config=DECOUPLED),
    "parallel": PythonModel(_PARALLEL, outputs="Y:STRING[1]", instances=2),
    "readiness": PythonModel(_READINESS % "def"),
    "readiness_async": PythonModel(_READINESS % "async def"),
    "printing": PythonModel(_PRINTING),
    "logging": PythonModel(_LOGGING),
    "batch": PythonModel(
        _BATCH, "X:FP32[1]", "Y:FP32[1]", "max_batch_size: 4\ndynamic_batching { }"
    ),
    "endless": PythonModel(_ENDLESS, config=DECOUPLED),
    "several_files": PythonModel(config='default_model_filename: "serve_this.py"', files=_FILES),
}

# -- one answer for each request ------------------------------------------------------------------


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


@pytest.mark.contract("PY-18")
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
def test_batch_is_executed_together_and_answered_one_by_one(
    client: Client, server: Served, repository: Path
) -> None:
    held = client.begin("batch", {"X": floats(0).reshape(1, 1)})
    pending = re.compile(r'nv_inference_pending_request_count\{model="batch",version="1"\} 4\n')

    def queued() -> bool:
        page = urllib.request.urlopen(server.metrics, timeout=10).read().decode()
        return pending.search(page) is not None

    wait_until((repository / "batch" / "gate.begun").exists)
    others = [client.begin("batch", {"X": floats(n).reshape(1, 1)}) for n in range(4)]
    wait_until(queued)
    (repository / "batch" / "gate").touch()
    assert held.result()["Y"].tolist() == [[1]]
    assert others[0].result()["Y"].tolist() == others[2].result()["Y"].tolist() == [[4]]
    assert [others[n].error().message for n in (1, 3)] == ["odd", "odd"]


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.contract("PY-26")
def test_square_answers_from_threads_after_execute_has_returned(client: Client) -> None:
    first = client.stream("square", {"X": ints(3)})
    assert len(client.answers("square", {"X": ints(-40)})) == 40
    assert [answer["Y"][0] for answer in first if answer.outputs] == [3, 3, 3]


@pytest.mark.contract("PY-23", "DC-02")
def test_repeat_answers_in_order_and_flags_the_last(client: Client) -> None:
    inputs = {"IN": ints(4, 2, 0, 1), "DELAY": np.array([1, 2, 3, 4], np.uint32)}
    answers = list(client.stream("repeat", inputs))
    assert [answer["OUT"][0] for answer in answers] == [4, 2, 0, 1]
    assert [answer["IDX"][0] for answer in answers] == [0, 1, 2, 3]
    assert [a.parameters["triton_final_response"] for a in answers] == [False] * 3 + [True]


def test_500_responses_arrive_in_order(client: Client) -> None:
    inputs = {"IN": np.arange(500, dtype=np.int32), "DELAY": np.zeros(500, np.uint32)}
    assert [a["OUT"][0] for a in client.answers("repeat", inputs)] == list(range(500))


@pytest.mark.contract("PY-27")
def test_executions_of_a_coroutine_overlap(client: Client) -> None:
    first = client.stream("meeting", {"X": floats(1)})
    wait_until(lambda: not client.ready("meeting"))  # the first one waits inside the model
    second = client.stream("meeting", {"X": floats(2)})
    assert [answer["Y"][0] for order in (first, second) for answer in order] == [1, 2]


@pytest.mark.contract("PY-29")
def test_model_learns_that_its_client_has_left(client: Client, repository: Path) -> None:
    stream = client.stream("endless", request_id="left")
    assert [next(iter(stream))["Y"][0] for _ in range(3)] == [0, 1, 2]
    stream.cancel()
    wait_until((repository / "endless" / "left").exists)


# -- the model's surroundings ---------------------------------------------------------------------


@pytest.mark.contract("PY-42")
def test_instances_execute_at_the_same_time(client: Client) -> None:
    orders = [client.begin("parallel") for _ in range(2)]
    names = {order.result()["Y"][0] for order in orders}
    assert names == {b"parallel_0_0", b"parallel_0_1"}


@pytest.mark.contract("PY-06")
@pytest.mark.parametrize("name", ["readiness", "readiness_async"])
def test_model_says_itself_whether_it_is_ready(
    client: Client, server: Served, repository: Path, name: str
) -> None:
    mood = repository / name / "mood"
    assert client.ready(name)
    mood.write_text("bad")
    assert not client.ready(name)
    assert not client.call("is_server_ready")
    assert client.infer(name)["Y"].tolist() == [1]
    mood.write_text("raise")
    assert not client.ready(name)
    assert f"no mood at all\\n\\nAt:\\n  {repository}/{name}/1/model.py(" in server.log.read_text()
    mood.write_text("good")
    assert client.ready(name)


def test_code_may_lie_in_several_files(client: Client) -> None:
    assert client.infer("several_files", {"X": floats(1, 2)})["Y"].tolist() == [-3, -5]


def test_model_may_print_megabytes(client: Client, server: Served) -> None:
    before = server.log.stat().st_size
    assert client.infer("printing")["Y"].tolist() == [1]
    assert server.log.stat().st_size - before >= 8 << 20


@pytest.mark.contract("PY-33")
def test_log_of_the_model_goes_to_the_servers(client: Client, server: Served) -> None:
    client.infer("logging")

    def lines() -> list[tuple[str, ...]]:
        return re.findall(r'^(\w)\d.* model.py:(\d+)\] "(an? .*)"$', server.log.read_text(), re.M)

    wait_until(lambda: len(lines()) >= 4)
    assert lines() == [
        ("I", "7", "an info from the model"),
        ("W", "8", "a warning from the model"),
        ("E", "9", "an error from the model"),
        ("I", "11", "a line without a level"),
    ]


def test_request_that_the_model_does_not_know_is_refused(client: Client) -> None:
    with pytest.raises(RefusedError, match="unexpected inference input 'Z'"):
        client.infer("optional", {"X": floats(1), "Z": floats(1)})

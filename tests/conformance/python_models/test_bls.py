"""Models that call other models."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from conformance.python_models.client import Client, floats, strings
from conformance.python_models.repository import DECOUPLED, PythonModel, write_models
from conformance.python_models.shared_memory import shared_memory
from serving import Served, wait_until

# -- models that are called -----------------------------------------------------------------------

_NEGATE = """
    import json
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x.size and x[0] == 13:
                error = pb_utils.TritonError("unlucky", pb_utils.TritonError.INVALID_ARG)
                return pb_utils.InferenceResponse(error=error)
            seen = json.dumps([request.request_id(), request.correlation_id(), request.flags(),
                               request.timeout(), json.loads(request.parameters())])
            y = pb_utils.Tensor("Y", -x)
            return pb_utils.InferenceResponse([y], parameters={"seen": seen})
"""

# Two instances that can only answer together.
_MEETING = """
    import os
    import time
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]
            self.name = args["model_instance_name"]

        def execute(self, requests):
            here = os.path.join(self.directory, self.name + ".here")
            open(here, "w").close()
            while sum(n.endswith(".here") for n in os.listdir(self.directory)) < 2:
                time.sleep(0.002)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

# Sends each element, then the final flag; negative ones as errors. Without elements it sends
# numbers of 64 KiB until it is cancelled; it leaves files after two of them, and at the end.
_REPEAT = """
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                values = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                for value in values if values.size else self.endless(sender):
                    if np.ndim(value) == 0 and value < 0:
                        error = pb_utils.TritonError("negative")
                        response = pb_utils.InferenceResponse(error=error)
                    else:
                        y = pb_utils.Tensor("Y", np.atleast_1d(value))
                        response = pb_utils.InferenceResponse([y])
                    sender.send(response)
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

        def endless(self, sender):
            number = 0
            while not sender.is_cancelled():
                yield np.full(1 << 14, number, np.float32)
                number += 1
                if number == 2:
                    open(os.path.join(self.directory, "two"), "w").close()
            open(os.path.join(self.directory, "cancelled"), "w").close()
"""

# -- models that call -----------------------------------------------------------------------------

_HEAD = """
    import asyncio
    import json
    import os
    import threading
    import time
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import triton_python_backend_utils as pb_utils


    def ask(model, x, **options):
        return pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)],
            **options)


    def output(response):
        if response.has_error():
            error = response.error()
            raise pb_utils.TritonModelException(f"[{error.code()}] {error.message()}")
        return pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()


    def answer(y, **options):
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)], **options)


    def x_of(request):
        return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()

"""


def _serial(body: str) -> str:
    """A model that answers each request by the lines of `body`, which see `request` and `x`."""
    return _model("def", "return [self.respond(r, x_of(r)) for r in requests]", "def", body)


def _coroutine(body: str) -> str:
    """As `_serial`, with coroutines."""
    execute = "return await asyncio.gather(*(self.respond(r, x_of(r)) for r in requests))"
    return _model("async def", f"return list({execute.removeprefix('return ')})", "async def", body)


def _model(first: str, execute: str, second: str, body: str) -> str:
    lines = [
        "class TritonPythonModel:",
        "    def initialize(self, args):",
        "        self.args = args",
        "",
        f"    {first} execute(self, requests):",
        f"        {execute}",
        "",
        f"    {second} respond(self, request, x):",
        *(f"        {line}" for line in body.strip("\n").splitlines()),
    ]
    return _HEAD + "\n".join("    " + line for line in lines) + "\n"


_CALLER = """
model = request.request_id()
response = ask(model, x, request_id="inner", correlation_id=5, flags=3, timeout=9_000_000,
               parameters={"from": "caller"}).exec()
y = output(response)
return answer(y, parameters={"seen": json.loads(response.parameters())["seen"]})
"""

_ASYNC = """
both = await asyncio.gather(*(ask("meeting", x + n).async_exec() for n in range(2)))
return answer(np.concatenate([output(response) for response in both]))
"""

_THREADS = """
with ThreadPoolExecutor(2) as pool:
    both = pool.map(lambda n: output(ask("meeting", x + n).exec()), range(2))
return answer(np.concatenate(list(both)))
"""

_SUM = """
seen = []
for response in ask("repeat", x).exec(decoupled=True):
    if response.has_error():
        seen.append(-100)
    elif response.output_tensors():
        seen.append(output(response)[0])
return answer(np.array(seen, np.float32))
"""

_ASYNC_SUM = """
seen = []
async for response in await ask("repeat", x).async_exec(decoupled=True):
    if response.output_tensors():
        seen.append(output(response)[0])
return answer(np.array(seen, np.float32))
"""

_TAKE_THREE = """
responses = ask("repeat", np.zeros(0, np.float32)).exec(decoupled=True)
seen = [output(next(responses))[0] for _ in range(3)]
responses.cancel()
return answer(np.array([*seen, len(list(responses))], np.float32))
"""

_TAKE_NONE = """
two = os.path.join(os.path.dirname(self.args["model_repository"]), "repeat", "two")
for _ in range(20):
    responses = ask("repeat", np.zeros(0, np.float32)).exec(decoupled=True)
    while not os.path.exists(two):
        time.sleep(0.002)
    os.unlink(two)
    responses.cancel()
return answer(x)
"""

_LEAVE_THE_LOOP = """
for response in ask("repeat", np.zeros(0, np.float32)).exec(decoupled=True):
    if output(response)[0] == 2:
        break
return answer(output(response)[:1])
"""

_NO_PATIENCE = """
try:
    await asyncio.wait_for(ask("gated", x).async_exec(), 0.01)
except asyncio.TimeoutError:
    return answer(-x)
"""

_OFTEN = """
total = 0
for n in range(300):
    total += output(ask("negate", np.full(1 << 14, 100, np.float32)).exec())[-1]
return answer(np.array([total], np.float32))
"""

_LANGUAGE = """
text = pb_utils.get_input_tensor_by_name(request, "PROMPT")
sampling = json.dumps({"max_tokens": 8, "temperature": 0, "ignore_eos": True})
inputs = [pb_utils.Tensor("text_input", text.as_numpy()),
          pb_utils.Tensor("stream", np.array([True])),
          pb_utils.Tensor("sampling_parameters", np.array([sampling], np.object_))]
question = pb_utils.InferenceRequest(
    model_name="tiny_llm", requested_output_names=["text_output"], inputs=inputs)
parts = []
for response in question.exec(decoupled=True):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    tensor = pb_utils.get_output_tensor_by_name(response, "text_output")
    if tensor is not None:
        parts.append(tensor.as_numpy().reshape(-1)[0])
joined = np.array([b"|".join(parts)], np.object_)
return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", joined)])
"""

# Calls itself until nothing is left.
_SELF = """
if x[0] <= 0:
    return answer(x)
return answer(1 + output(ask(self.args["model_name"], x - 1).exec()))
"""

# Two that call each other until nothing is left.
_OTHER = """
if x[0] <= 0:
    return answer(x)
other = {"ping": "pong", "pong": "ping"}[self.args["model_name"]]
return answer(1 + output(ask(other, x - 1).exec()))
"""

_ASYNC_SELF = (
    _SELF.replace("ask(", "await_(ask(")
    .replace("await_(", "(await ")
    .replace(".exec())", ".async_exec()))")
)

# Waits for a file, so that a test decides when it ends.
_GATED = """
gate = os.path.join(self.args["model_repository"], request.request_id() or "gate")
open(gate + ".begun", "w").close()
while not os.path.exists(gate):
    time.sleep(0.002)
return answer(x)
"""

# A coroutine that blocks its event loop with a call.
_BLOCKED_LOOP = (
    _HEAD
    + """
    class TritonPythonModel:
        async def execute(self, requests):
            for request in requests:
                x, sender = x_of(request), request.get_response_sender()
                if x[0] > 0:
                    x = output(ask("gated", x, request_id="later").exec())
                flag = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                sender.send(answer(x), flags=flag)
            return None
"""
)

_AT_THE_WRONG_TIME = (
    _HEAD
    + """
    class TritonPythonModel:
        def initialize(self, args):
            try:
                ask("negate", np.ones(1, np.float32)).exec()
            except pb_utils.TritonModelException as error:
                self.told = str(error)

        def execute(self, requests):
            text = np.array([self.told], np.object_)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", text)]) for _ in requests]
"""
)

MODELS = {
    "negate": PythonModel(_NEGATE),
    "meeting": PythonModel(_MEETING, instances=2),
    "repeat": PythonModel(_REPEAT, config=DECOUPLED),
    "gated": PythonModel(_serial(_GATED)),
    "caller": PythonModel(_serial(_CALLER)),
    "async": PythonModel(_coroutine(_ASYNC)),
    "threads": PythonModel(_serial(_THREADS)),
    "sum": PythonModel(_serial(_SUM)),
    "async_sum": PythonModel(_coroutine(_ASYNC_SUM)),
    "take_three": PythonModel(_serial(_TAKE_THREE)),
    "take_none": PythonModel(_serial(_TAKE_NONE)),
    "leave_the_loop": PythonModel(_serial(_LEAVE_THE_LOOP)),
    "no_patience": PythonModel(_coroutine(_NO_PATIENCE)),
    "often": PythonModel(_serial(_OFTEN)),
    "language": PythonModel(_serial(_LANGUAGE), "PROMPT:STRING[1] X:FP32[1]", "TEXT:STRING[1]"),
    "self": PythonModel(_serial(_SELF)),
    "ping": PythonModel(_serial(_OTHER)),
    "pong": PythonModel(_serial(_OTHER)),
    "self_async": PythonModel(_coroutine(_ASYNC_SELF)),
    "self_three": PythonModel(_serial(_SELF), instances=3),
    "blocked_loop": PythonModel(_BLOCKED_LOOP, config=DECOUPLED),
    "at_the_wrong_time": PythonModel(_AT_THE_WRONG_TIME, outputs="TEXT:STRING[1]"),
}


@pytest.fixture(scope="module")
def repository(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of this file, and the language model of the demo."""
    directory = write_models(tmp_path_factory.mktemp("models"), MODELS)
    shutil.copytree(demo / "tiny_llm", directory / "tiny_llm")
    return directory


# -- one answer -----------------------------------------------------------------------------------


@pytest.mark.contract("PY-13")
@pytest.mark.parametrize("size", [1, 1 << 10, 1 << 18], ids=["small", "4 KiB", "1 MiB"])
def test_model_answers_with_the_answer_of_another(client: Client, size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    assert (client.infer("caller", {"X": x}, request_id="negate")["Y"] == -x).all()


@pytest.mark.contract("PY-12")
def test_called_model_sees_what_the_caller_said(client: Client) -> None:
    seen = client.infer("caller", {"X": floats(1)}, request_id="negate").parameters["seen"]
    assert seen == '["inner", 5, 3, 9000000, {"from": "caller"}]'


@pytest.mark.contract("PY-19")
@pytest.mark.parametrize(
    ("model", "x", "told"),
    [
        ("negate", 13, "[3] unlucky"),
        ("nobody", 1, "[2] Request for unknown model: 'nobody' is not found"),
        ("repeat", 1, "Model 'repeat' is using the decoupled."),
    ],
)
def test_refusal_of_the_called_model_is_an_error_with_its_code(
    client: Client, model: str, x: float, told: str
) -> None:
    error = client.refusal("caller", {"X": floats(x)}, request_id=model)
    assert error.code == "INTERNAL"
    assert f"message: TritonModelException: {told}" in error.message.replace("[3] Model", "Model")


@pytest.mark.contract("PY-13")
@pytest.mark.parametrize("name", ["async", "threads"])
def test_several_calls_are_in_flight_at_once(client: Client, repository: Path, name: str) -> None:
    for path in (repository / "meeting").glob("*.here"):
        path.unlink()
    assert sorted(client.infer(name, {"X": floats(4)})["Y"].tolist()) == [4, 5]


@pytest.mark.contract("PY-14")
def test_model_may_call_only_while_it_executes(client: Client) -> None:
    told = client.infer("at_the_wrong_time")["TEXT"][0]
    assert told == b"BLS is only supported during the 'execute' function."


def test_many_calls_of_one_execution_take_no_more_memory_than_a_few(
    client: Client, server: Served
) -> None:
    before = shared_memory(server)
    assert client.infer("often")["Y"].tolist() == [-30_000]
    assert shared_memory(server) - before <= 4 << 20


def test_call_that_a_coroutine_gives_up_is_cancelled(client: Client, repository: Path) -> None:
    assert client.infer("no_patience", {"X": floats(4)})["Y"].tolist() == [-4]
    (repository / "gated" / "gate").touch()
    assert client.infer("gated", {"X": floats(5)})["Y"].tolist() == [5]


def test_work_that_comes_while_a_coroutine_blocks_is_done(client: Client, repository: Path) -> None:
    gated = repository / "gated"
    blocked = client.stream("blocked_loop", {"X": floats(1)})
    wait_until((gated / "later.begun").exists)
    waiting = [client.stream("blocked_loop", {"X": floats(-n)}) for n in range(4)]
    client.infer("negate")  # what was asked before it is in the model's hands now
    (gated / "later").touch()
    assert blocked.result()["Y"].tolist() == [1]
    assert [order.result()["Y"][0] for order in waiting] == [0, -1, -2, -3]


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.contract("PY-15")
def test_responses_of_a_stream_come_one_by_one(client: Client) -> None:
    x = np.arange(100, dtype=np.float32)
    assert client.infer("sum", {"X": x})["Y"].tolist() == x.tolist()


def test_error_in_a_stream_is_one_response_of_it(client: Client) -> None:
    assert client.infer("sum", {"X": floats(1, -1, 2)})["Y"].tolist() == [1, -100, 2]


def test_coroutine_iterates_over_a_stream(client: Client) -> None:
    x = np.arange(100, dtype=np.float32)
    assert client.infer("async_sum", {"X": x})["Y"].tolist() == x.tolist()


@pytest.mark.contract("PY-15", "PY-29")
@pytest.mark.parametrize(
    ("name", "answer"), [("take_three", [0, 1, 2, 0]), ("leave_the_loop", [2])]
)
def test_model_learns_that_its_caller_wants_no_more(
    client: Client, server: Served, repository: Path, name: str, answer: list[float]
) -> None:
    cancelled = repository / "repeat" / "cancelled"
    cancelled.unlink(missing_ok=True)
    assert client.infer(name)["Y"].tolist() == answer
    wait_until(cancelled.exists)
    assert client.infer("sum", {"X": floats(7)})["Y"].tolist() == [7]


def test_responses_that_come_too_late_leave_no_shared_memory_behind(
    client: Client, server: Served, repository: Path
) -> None:
    (repository / "repeat" / "two").unlink(missing_ok=True)
    client.infer("take_none")
    before = shared_memory(server)
    client.infer("take_none")
    assert shared_memory(server) - before <= 4 << 20


def test_model_calls_the_language_model(client: Client) -> None:
    answer = client.infer("language", {"PROMPT": strings("The file is"), "X": floats(0)})
    parts = answer["TEXT"][0].split(b"|")
    assert len(parts) >= 4
    assert len(b"".join(parts).split()) >= 2


# -- calling oneself ------------------------------------------------------------------------------


@pytest.mark.contract("PY-16")
@pytest.mark.parametrize("name", ["self", "self_async"])
def test_only_instance_that_calls_itself_is_refused(client: Client, name: str) -> None:
    error = client.refusal(name, {"X": floats(1)})
    assert f"model '{name}' calls itself while its only instance '{name}_0_0'" in error.message
    assert client.infer(name, {"X": floats(0)})["Y"].tolist() == [0]


def test_models_that_would_wait_for_each_other_are_refused(client: Client) -> None:
    assert client.infer("ping", {"X": floats(1)})["Y"].tolist() == [1]
    error = client.refusal("ping", {"X": floats(2)})
    assert "its every instance is waiting for: ping_0_0 -> pong_0_0 -> ping" in error.message
    assert client.infer("pong", {"X": floats(1)})["Y"].tolist() == [1]


def test_model_with_more_instances_may_call_itself(client: Client) -> None:
    assert client.infer("self_three", {"X": floats(2)})["Y"].tolist() == [2]

"""Models that answer a request many times, and in their own time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conformance.python_models.client import Client, floats, ints
from conformance.python_models.repository import DECOUPLED, PythonModel
from harness.serving import wait_until

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

MODELS = {
    "square": PythonModel(_SQUARE, "X:INT32[1]", "Y:INT32[1]", DECOUPLED),
    "repeat": PythonModel(
        _REPEAT, "IN:INT32[-1] DELAY:UINT32[-1]", "OUT:INT32[1] IDX:UINT32[1]", DECOUPLED
    ),
    "meeting": PythonModel(_MEETING, config=DECOUPLED),
    "endless": PythonModel(_ENDLESS, config=DECOUPLED),
}


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

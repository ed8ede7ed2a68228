"""A model whose requests are quick, until one is not: nobody else pays for it."""

from __future__ import annotations

from pathlib import Path

from conformance.python_models.client import Client, floats
from conformance.python_models.repository import PythonModel

# Answers at once; a number other than 0 waits for the file of its name.
_SLEEPER = """
    import os
    import time
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def execute(self, requests):
            return [self.respond(request.inputs()[0].as_numpy()) for request in requests]

        def respond(self, x):
            gate = os.path.join(self.directory, str(int(x[0])))
            while x[0] and not os.path.exists(gate):
                time.sleep(0.002)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""

MODELS = {"sleeper": PythonModel(_SLEEPER)}


def test_quick_answers_do_not_wait_for_a_slow_request_behind_them(
    client: Client, repository: Path
) -> None:
    quick = [client.begin("sleeper", {"X": floats(0)}) for _ in range(100)]
    for order in quick:
        order.result()  # now it gets batches ahead
    for number in range(1, 4):
        before = [client.begin("sleeper", {"X": floats(0)}) for _ in range(12)]
        slow = client.begin("sleeper", {"X": floats(number)})
        for order in before:
            order.result()
        (repository / "sleeper" / str(number)).touch()
        assert slow.result()["Y"][0] == number

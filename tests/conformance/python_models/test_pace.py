"""A model whose requests are quick, until one is not: nobody else pays for it."""

from __future__ import annotations

import numpy as np

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel

_SLEEPER = """
    import time
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            answers = []
            for request in requests:
                seconds = request.inputs()[0].as_numpy()
                if seconds[0]:
                    time.sleep(float(seconds[0]))
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", seconds)]))
            return answers
"""

MODELS = {"sleeper": PythonModel(_SLEEPER)}

SLOW = 3.0


def seconds(value: float) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return {"X": np.array([value], np.float32)}


def test_quick_answers_do_not_wait_for_a_slow_request_behind_them(client: Client) -> None:
    quick = [client.begin("sleeper", seconds(0)) for _ in range(100)]  # now it gets batches ahead
    for order in quick:
        order.result()
    for _ in range(3):
        before = [client.begin("sleeper", seconds(0)) for _ in range(12)]
        slow = client.begin("sleeper", seconds(SLOW))
        for order in before:
            order.result(timeout=SLOW / 2)
        assert slow.result()["Y"][0] == SLOW

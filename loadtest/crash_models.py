"""Models as in reports of crashes of Triton's Python backend: small, and in its own form."""

from __future__ import annotations

from pathlib import Path

_HEAD = """\
import asyncio
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def given(request):
    return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()


def answer(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)])


def question(model, array):
    return pb_utils.InferenceRequest(
        model_name=model, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", array)]
    )


def found(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "Y").as_numpy()


class TritonPythonModel:
"""

_STEP = """
    def execute(self, requests):
        return [answer(given(request) + np.float32(1)) for request in requests]
"""

_TWICE = """
    def execute(self, requests):
        return [answer(np.tile(given(request), 2)) for request in requests]
"""

_UPPER = """
    def execute(self, requests):
        return [
            answer(np.array([text.upper() for text in given(request)], object))
            for request in requests
        ]
"""

_CHAIN = """
    def execute(self, requests):
        return [self.follow(request) for request in requests]

    def follow(self, request):
        array = given(request)
        for model in ("step", "twice", "step"):
            array = found(question(model, array).exec())
        return answer(array)
"""

_LETTERS = """
    def execute(self, requests):
        return [answer(found(question("upper", given(request)).exec())) for request in requests]
"""

_GATHER = """
    async def execute(self, requests):
        return await asyncio.gather(*[self.parts(request) for request in requests])

    async def parts(self, request):
        calls = [question("step", part).async_exec() for part in np.array_split(given(request), 6)]
        return answer(np.concatenate([found(one) for one in await asyncio.gather(*calls)]))
"""

_COUNT = """
    def execute(self, requests):
        for request in requests:
            arguments = request.get_response_sender(), int(given(request)[0])
            threading.Thread(target=self.send, args=arguments).start()

    def send(self, sender, number):
        for index in range(number):
            time.sleep(0.002)
            sender.send(answer(np.array([index], np.float32)))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_FAN = """
    async def execute(self, requests):
        return [answer(await self.total(given(request))) for request in requests]

    async def total(self, array):
        streams = [self.stream(array) for _ in range(40)]
        return np.array([sum(await asyncio.gather(*streams))], np.float32)

    async def stream(self, array):
        received = 0
        for response in await question("count", array).async_exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            received += len(response.output_tensors())
        return received
"""

_FAILS = """
    def execute(self, requests):
        return [self.judge(given(request)) for request in requests]

    def judge(self, array):
        if array[0] < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("it is negative"))
        return answer(array)
"""

_RAISES = """
    def execute(self, requests):
        return [answer(found(question("fails", given(request)).exec())) for request in requests]
"""

_WHO = """
    def execute(self, requests):
        return [answer(np.array([os.getpid()], np.float32)) for _ in requests]
"""

_MODELS = {
    # name: code, type of its tensors, instances, whether it is decoupled
    "step": (_STEP, "FP32", 2, False),
    "twice": (_TWICE, "FP32", 2, False),
    "upper": (_UPPER, "STRING", 1, False),
    "chain": (_CHAIN, "FP32", 4, False),
    "letters": (_LETTERS, "STRING", 2, False),
    "gather": (_GATHER, "FP32", 4, False),
    "count": (_COUNT, "FP32", 1, True),
    "fan": (_FAN, "FP32", 4, False),
    "fails": (_FAILS, "FP32", 1, False),
    "raises": (_RAISES, "FP32", 2, False),
    "who": (_WHO, "FP32", 1, False),
}

_CONFIG = """\
backend: "python"
input {{ name: "X" data_type: TYPE_{kind} dims: [ -1 ] }}
output {{ name: "Y" data_type: TYPE_{kind} dims: [ -1 ] }}
instance_group {{ count: {instances} kind: KIND_CPU }}
"""


def write_crash_models(directory: Path, *names: str, most: int = 4) -> Path:
    """Write these models, or all of them, with so many instances at most; returns `directory`."""
    for name in names or _MODELS:
        code, kind, instances, decoupled = _MODELS[name]
        config = _CONFIG.format(kind=kind, instances=min(instances, most))
        if decoupled:
            config += "model_transaction_policy { decoupled: true }\n"
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
        (directory / name / "1" / "model.py").write_text(_HEAD + code)
    return directory

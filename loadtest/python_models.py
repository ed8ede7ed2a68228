"""The models that scenarios serve on this server and on its peer: plain `model.py` files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from textwrap import dedent

FLOOD = '''
import asyncio

import numpy as np

from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


class Flood(Model):
    """Responses of 4 KiB without end."""

    config = ModelConfig(
        input=(Input("IN", DataType.INT32, dims=(1,)),),
        output=(Output("OUT", DataType.UINT8, dims=(4096,)),),
    )

    async def infer(self, request):
        while True:
            yield Response({"OUT": np.zeros(4096, np.uint8)})
            await asyncio.sleep(0)
'''
"""A model of this server's own interface that never stops: for clients that read slowly."""

_IDENTITY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor(
                    "OUTPUT0",
                    pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy(),
                )
            ])
            for request in requests
        ]
"""

_COUNT = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            wanted = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            sender = request.get_response_sender()
            for number in range(wanted):
                tensor = pb_utils.Tensor("NUMBER", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_CALLER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.ask(request) for request in requests]

    def ask(self, request):
        call = pb_utils.InferenceRequest(
            model_name="identity",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.get_input_tensor_by_name(request, "INPUT0")],
        )
        answer = call.exec()
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        return pb_utils.InferenceResponse(answer.output_tensors())
"""

_TENSORS = """
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }]
"""

_STEP = """{{
  model_name: "identity" model_version: -1
  input_map {{ key: "INPUT0" value: "{source}" }}
  output_map {{ key: "OUTPUT0" value: "{target}" }}
}}"""


def write_python_models(directory: Path) -> None:
    """`identity`, `batched`, `caller`, `count`, and ensembles `steps_1` and `steps_2`."""
    python = 'backend: "python"\n'
    _write(directory / "identity", python + _TENSORS, _IDENTITY)
    batched = python + "max_batch_size: 8\ndynamic_batching { }\n" + _TENSORS
    _write(directory / "batched", batched, _IDENTITY)
    _write(directory / "caller", python + _TENSORS, _CALLER)
    count = """
        input [{ name: "COUNT" data_type: TYPE_INT32 dims: [1] }]
        output [{ name: "NUMBER" data_type: TYPE_INT32 dims: [1] }]
        model_transaction_policy { decoupled: true }
        """
    _write(directory / "count", python + dedent(count), _COUNT)
    for steps in (1, 2):
        names = ["INPUT0", *(f"between_{n}" for n in range(1, steps)), "OUTPUT0"]
        pairs = pairwise(names)
        listed = ", ".join(_STEP.format(source=source, target=target) for source, target in pairs)
        graph = f'platform: "ensemble"\nensemble_scheduling {{ step [{listed}] }}\n'
        _write(directory / f"steps_{steps}", graph + _TENSORS)


def _write(model: Path, config: str, code: str = "") -> None:
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)
    if code:
        (model / "1" / "model.py").write_text(code.lstrip())

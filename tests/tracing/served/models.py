"""The models of these tests: in the server, in processes, batched, cached, nested and streaming."""

from __future__ import annotations

from pathlib import Path

_TENSORS = """
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""

_BLS = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "IN")
            for _ in range(int(value.as_numpy().flat[0])):
                called = pb_utils.InferenceRequest(
                    model_name="plain", requested_output_names=["OUT"], inputs=[value]
                )
                response = called.exec()
                if response.has_error():
                    raise pb_utils.TritonModelException(response.error().message())
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value.as_numpy())]))
        return answers
"""

_ENDLESS = """\
import asyncio
from pathlib import Path
from penstock.model import Model, Request, Response


class Endless(Model):
    async def infer(self, request: Request) -> Response:
        Path(__file__).with_name("begun").touch()
        await asyncio.Event().wait()
        return Response({"OUT": request["IN"]})
"""

_STREAM = """\
import asyncio
from penstock.model import Context, Model, Request, Response


class Counter(Model):
    async def infer(self, request: Request):
        for number in range(int(request["IN"].flat[0])):
            await asyncio.sleep(0.001)
            yield Response({"OUT": request["IN"] + number})
"""

_ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling {
  step [
    { model_name: "plain" model_version: -1
      input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "middle" } },
    { model_name: "bls" model_version: -1
      input_map { key: "IN" value: "middle" } output_map { key: "OUT" value: "OUT" } }
  ]
}
"""

_CONFIGS = {
    "plain": 'backend: "identity"',
    "batched": 'backend: "identity" max_batch_size: 8'
    " dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000000 }",
    "cached": 'backend: "identity" response_cache { enable: true }',
    "bls": 'backend: "python"',
    "stream": 'backend: "python" model_transaction_policy { decoupled: true }',
    "endless": 'backend: "python"',
    "ensemble": _ENSEMBLE,
}


def write_models(repository: Path) -> Path:
    """The repository with all of them."""
    for name, config in _CONFIGS.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(config + _TENSORS)
    (repository / "bls" / "1" / "model.py").write_text(_BLS)
    (repository / "stream" / "1" / "model.py").write_text(_STREAM)
    (repository / "endless" / "1" / "model.py").write_text(_ENDLESS)
    return repository

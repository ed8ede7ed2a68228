"""The models of the soak: every kind that a user may have, each with an answer that is known."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

_ROW = """
    input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
    output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
_NUMBERS = """
    input [{ name: "IN" data_type: TYPE_INT32 dims: [-1] },
           { name: "DELAY" data_type: TYPE_UINT32 dims: [-1] },
           { name: "WAIT" data_type: TYPE_UINT32 dims: [1] }]
    output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] },
            { name: "IDX" data_type: TYPE_UINT32 dims: [1] }]
    model_transaction_policy { decoupled: true }
"""
_BLOCKS = """
    input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
    output [{ name: "OUT" data_type: TYPE_INT32 dims: [1024] }]
    model_transaction_policy { decoupled: true }
"""
_TEXT = """
    input [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]
    output [{ name: "OUT" data_type: TYPE_STRING dims: [1] }]
"""
_DECOUPLED = "    model_transaction_policy { decoupled: true }\n"
_SEQUENCES = """
    max_batch_size: 4
    sequence_batching { max_sequence_idle_microseconds: 20000000 control_input [
      { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
      { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] },
      { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] }
    input [{ name: "X" data_type: TYPE_INT32 dims: [1] }]
    output [{ name: "Y" data_type: TYPE_INT32 dims: [1] }]
"""
_CHANGING = """
    input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
    output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] },
            { name: "FACTOR" data_type: TYPE_FP32 dims: [1] }]
"""

# Every model in Python notes its process here, so that trouble can be made by the model's name.
_NOTED = """
    import os
    import time
    import numpy as np
    import triton_python_backend_utils as pb_utils


    def noted(name):
        open(f"{PIDS}/{name}.{os.getpid()}", "w").close()


    def tensor(request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


    def answer(array, name="OUT"):
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])
"""

_PLAIN = """
    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])

        def execute(self, requests):
            time.sleep(SECONDS)
            return [answer(FORMULA) for request in requests]
"""

_CALLER = """
    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            called = pb_utils.InferenceRequest(
                model_name="cached", requested_output_names=["OUT"],
                inputs=[pb_utils.Tensor("IN", tensor(request, "IN"))]).exec()
            if called.has_error():
                return pb_utils.InferenceResponse(error=called.error())
            found = pb_utils.get_output_tensor_by_name(called, "OUT").as_numpy()
            return answer(found + np.float32(1))
"""

_ASKER = """
    import asyncio


    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])

        async def execute(self, requests):
            return await asyncio.gather(*map(self.respond, requests))

        async def respond(self, request):
            called = await asyncio.gather(*(
                pb_utils.InferenceRequest(
                    model_name=name, requested_output_names=["OUT"],
                    inputs=[pb_utils.Tensor("IN", tensor(request, "IN"))]).async_exec()
                for name in ("plain", "victim")))
            for one in called:
                if one.has_error():
                    return pb_utils.InferenceResponse(error=one.error())
            a, b = (pb_utils.get_output_tensor_by_name(one, "OUT").as_numpy() for one in called)
            return answer(a + b)
"""

_REPEAT = """
    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])

        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                pairs = zip(tensor(request, "IN"), tensor(request, "DELAY"))
                for index, (value, delay) in enumerate(pairs):
                    time.sleep(delay / 1000)
                    sender.send(pb_utils.InferenceResponse([
                        pb_utils.Tensor("OUT", np.array([value], np.int32)),
                        pb_utils.Tensor("IDX", np.array([index], np.uint32))]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_SPELL = """
    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])

        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                for letter in tensor(request, "TEXT")[0].decode():
                    sender.send(answer(np.array([letter.encode()], np.object_)))
                    time.sleep(0.002)
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_SHOUT = """
    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])

        def execute(self, requests):
            return [answer(np.array([tensor(request, "TEXT")[0].upper()], np.object_))
                    for request in requests]
"""

_SUMS = """
    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])
            self.sums = {}

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x, start, ready, id = (tensor(request, name).flat[0]
                                   for name in ("X", "START", "READY", "ID"))
            if ready:
                self.sums[id] = x + (0 if start else self.sums[id])
            return answer(np.array([[self.sums.get(id, 0)]], np.int32), "Y")
"""

_SCALED = """
    import json


    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])
            text = json.loads(args["model_config"])["parameters"]["factor"]["string_value"]
            self.factor = np.array([text], np.float32)

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            return pb_utils.InferenceResponse([
                pb_utils.Tensor("OUT", tensor(request, "IN") * self.factor),
                pb_utils.Tensor("FACTOR", self.factor)])
"""

_BLOCKS_FOR_EVER = """
    class TritonPythonModel:
        def initialize(self, args):
            noted(args["model_name"])

        def execute(self, requests):
            for request in requests:
                sender, number = request.get_response_sender(), tensor(request, "IN")[0]
                while not request.is_cancelled():
                    sender.send(answer(np.full(1024, number, np.int32)))
                    number += 1
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_COROUTINE = '''
    """The asyncio form of a model."""

    import asyncio
    import os

    import numpy as np

    from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


    class Coro(Model):
        config = ModelConfig(
            input=(Input("IN", DataType.FP32, dims=(-1,)),),
            output=(Output("OUT", DataType.FP32, dims=(-1,)),),
        )

        async def load(self, context):
            open(f"{PIDS}/coro.{os.getpid()}", "w").close()

        async def infer(self, request):
            await asyncio.sleep(0.01)
            return Response({"OUT": request["IN"] - np.float32(1)})
'''

_GENERATOR = '''
    """Blocks of numbers without end."""

    import asyncio
    import os

    import numpy as np

    from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


    class Drip(Model):
        config = ModelConfig(
            input=(Input("IN", DataType.INT32, dims=(1,)),),
            output=(Output("OUT", DataType.INT32, dims=(1024,)),),
        )

        async def load(self, context):
            open(f"{PIDS}/drip.{os.getpid()}", "w").close()

        async def infer(self, request):
            number = request["IN"][0]
            while True:
                yield Response({"OUT": np.full(1024, number, np.int32)})
                number += 1
                await asyncio.sleep(0.001)
'''


class SoakModels:
    """Writes the models of the soak into a repository.

    With `peer`, those that only this server has (backends `identity` and `repeat`, asyncio models)
    are written for Triton's Python backend. Processes of models leave a file `MODEL.PID` in `pids`.
    """

    def __init__(self, repository: Path, pids: Path, *, peer: bool = False) -> None:
        self._repository = repository
        self._pids = pids
        pids.mkdir()
        self._write_formulas()
        self._write_decoupled()
        self._write_callers()
        self._python("sums", _SEQUENCES, _SUMS, instances=2)
        self._python("shout", _TEXT, _SHOUT)
        self.change(2.0, 1)
        self._code("changing", _NOTED + _SCALED)
        if peer:
            self._formula("echo", "tensor(request, 'IN')")
            self._formula("coro", "tensor(request, 'IN') - np.float32(1)", seconds=0.01)
            self._python("repeat", _NUMBERS, _REPEAT)
            self._python("drip", _BLOCKS, _BLOCKS_FOR_EVER)
        else:
            self._config("echo", 'backend: "identity"' + _ROW)
            self._config("repeat", 'backend: "repeat"' + _NUMBERS)
            self._code("coro", _COROUTINE)
            self._code("drip", _GENERATOR)

    def change(self, factor: float, instances: int) -> None:
        """Write the configuration of `changing` anew."""
        self._config("changing", self.changed(factor, instances))

    def changed(self, factor: float, instances: int) -> str:
        """A configuration of `changing`, as text."""
        parameter = f'parameters {{ key: "factor" value: {{ string_value: "{factor}" }} }}'
        return f'backend: "python"{_CHANGING}{parameter}\n{_group(instances)}'

    def processes(self, model: str) -> list[int]:
        """The processes that the instances of a model have had, the latest last."""
        noted = sorted(self._pids.glob(f"{model}.*"), key=lambda path: path.stat().st_mtime_ns)
        return [int(path.suffix[1:]) for path in noted]

    def add_hungry(self) -> None:
        """A model that takes as many MiB as it is told, for as long as a call takes."""
        self._formula("hungry", "np.ones(int(tensor(request, 'IN')[0]) << 18, np.float32)[:1]")

    def forget(self, model: str, pid: int) -> None:
        """A process of a model is gone."""
        (self._pids / f"{model}.{pid}").unlink(missing_ok=True)

    def _write_formulas(self) -> None:
        x = "tensor(request, 'IN')"
        self._formula("plain", f"{x} * np.float32(2) + np.float32(1)", instances=2)
        self._formula("victim", f"{x} + np.float32(7)", seconds=0.003)
        self._formula("frozen", f"{x} + np.float32(5)")
        self._formula("coming", f"{x} + np.float32(2)")
        cache = "response_cache { enable: true }\n"
        self._formula("cached", f"{x} * np.float32(3)", more=cache)
        batches = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 2000 }\n"
        self._formula("batched", f"{x} - np.float32(3)", more=batches)

    def _write_decoupled(self) -> None:
        self._python("count", _NUMBERS, _REPEAT)
        self._python("spell", _TEXT + _DECOUPLED, _SPELL)

    def _write_callers(self) -> None:
        self._python("caller", _ROW, _CALLER)
        self._python("asker", _ROW, _ASKER)
        self._ensemble("chain", "echo", "plain", "victim")
        self._ensemble("steps", "batched", "batched", more="max_batch_size: 8\n")

    def _formula(
        self, name: str, formula: str, *, instances: int = 1, seconds: float = 0.0, more: str = ""
    ) -> None:
        code = _PLAIN.replace("FORMULA", formula).replace("SECONDS", str(seconds))
        self._python(name, more + _ROW, code, instances)

    def _python(self, name: str, config: str, code: str, instances: int = 1) -> None:
        self._config(name, f'backend: "python"\n{config}{_group(instances)}')
        self._code(name, _NOTED + code)

    def _ensemble(self, name: str, *models: str, more: str = "") -> None:
        between = [f"between_{n}" for n in range(1, len(models))]
        wires = zip(models, ["IN", *between], [*between, "OUT"], strict=True)
        steps = ", ".join(
            f'{{ model_name: "{model}" model_version: -1'
            f' input_map {{ key: "IN" value: "{source}" }}'
            f' output_map {{ key: "OUT" value: "{target}" }} }}'
            for model, source, target in wires
        )
        graph = f'platform: "ensemble"\nensemble_scheduling {{ step [{steps}] }}\n'
        self._config(name, graph + more + _ROW)

    def _config(self, name: str, config: str) -> None:
        (self._repository / name / "1").mkdir(parents=True, exist_ok=True)
        (self._repository / name / "config.pbtxt").write_text(dedent(config))

    def _code(self, name: str, code: str) -> None:
        (self._repository / name / "1").mkdir(parents=True, exist_ok=True)
        text = dedent(code).lstrip().replace("{PIDS}", str(self._pids))
        (self._repository / name / "1" / "model.py").write_text(text)


def _group(instances: int) -> str:
    return f"instance_group [ {{ kind: KIND_CPU count: {instances} }} ]\n"

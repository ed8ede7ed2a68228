"""Python models that know sequences, and how they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.python_models.client import Array, Client, ints
from conformance.python_models.repository import DECOUPLED, PythonModel

_CONTROLS = """
    control_input [
      { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
      { name: "END" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } ] },
      { name: "READY"
        control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
      { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: %s } ] }
    ]
"""


def _sequences(
    strategy: str,
    *,
    rows: int = 4,
    idle: float = 60.0,
    id_type: str = "TYPE_UINT64",
    more: str = "",
) -> str:
    return f"""
        max_batch_size: {rows}
        sequence_batching {{
          max_sequence_idle_microseconds: {int(idle * 1e6)} {strategy} {_CONTROLS % id_type} {more}
        }}
    """


# Answers with the process, and with the requests and the sum of the sequence so far.
_SUMS = """
    import os
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.sums = {}

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x, start, end, ready, id = (
                pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0]
                for name in ("X", "START", "END", "READY", "ID"))
            count, total = (0, 0) if start else self.sums.get(id, (0, 0))
            if ready:
                self.sums[id] = count + 1, total + x
            if end:
                del self.sums[id]
            y = np.array([[os.getpid(), count + 1, total + x]], np.int32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""


# Answers with what the whole batch was told.
_ROWS = """
    import json
    import numpy as np
    import triton_python_backend_utils as pb_utils

    NAMES = "X", "START", "END", "READY", "ID"


    def value(request, name):
        value = pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0]
        return value.decode() if isinstance(value, bytes) else int(value)


    class TritonPythonModel:
        def execute(self, requests):
            rows = [[value(request, name) for name in NAMES] for request in requests]
            y = np.array([[json.dumps(rows).encode()]], np.object_)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]) for _ in requests]
"""


# Goes over a request as often as it says, and answers at the last time.
_PASSES = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.seen = {}

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x, start, ready = (pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0]
                               for name in ("X", "START", "READY"))
            if not ready:
                return None
            id = request.correlation_id()
            self.seen[id] = 1 if start else self.seen[id] + 1
            if x < 0 or self.seen[id] < x:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            if self.seen[id] < x:
                return None
            y = np.array([[self.seen.pop(id), start]], np.int32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""


# Says one number for each time that it goes over a request, and with how many others.
_NUMBERS = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.left = {}

        def execute(self, requests):
            for request in requests:
                self.go_on(request, len(requests))

        def go_on(self, request, others):
            x, start = (pb_utils.get_input_tensor_by_name(request, name).as_numpy().flat[0]
                        for name in ("X", "START"))
            id = request.correlation_id()
            left = self.left[id] = (x if start else self.left[id]) - 1
            if left and not request.is_cancelled():
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            y = pb_utils.Tensor("Y", np.array([[x - left, others]], np.int32))
            flags = 0 if left else pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            request.get_response_sender().send(pb_utils.InferenceResponse([y]), flags=flags)
"""


# Asks the model 'sums' with the parameters of its own request.
_CALLER = """
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        async def execute(self, requests):
            return [await self.respond(request) for request in requests]

        async def respond(self, request):
            x = pb_utils.Tensor("X", request.inputs()[0].as_numpy().reshape(1, 1))
            call = pb_utils.InferenceRequest(
                model_name="sums", requested_output_names=["Y"], inputs=[x],
                correlation_id=request.correlation_id())
            call.set_flags(request.flags())
            answer = await call.async_exec()
            if answer.has_error():
                return pb_utils.InferenceResponse(error=answer.error())
            y = answer.output_tensors()[0].as_numpy().reshape(3)
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)])
"""


# Counts and sums up in tensors that the server keeps.
_KEPT = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x, count, seen = (pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                              for name in ("X", "COUNT", "SEEN"))
            if x.flat[0] < 0:
                return pb_utils.InferenceResponse(error=pb_utils.TritonError("no such number"))
            seen = np.concatenate([seen, x], axis=1)
            return pb_utils.InferenceResponse([
                pb_utils.Tensor("Y", seen.sum(axis=1, keepdims=True, dtype=np.int32)),
                pb_utils.Tensor("COUNT_OUT", count + 1), pb_utils.Tensor("SEEN_OUT", seen)])
"""


_STATES = """
    state [
      { input_name: "COUNT" output_name: "COUNT_OUT" data_type: TYPE_INT32 dims: [ 1 ]
        initial_state { name: "first" data_type: TYPE_INT32 dims: [ 1 ] data_file: "count" } },
      { input_name: "SEEN" output_name: "SEEN_OUT" data_type: TYPE_INT32 dims: [ -1 ]
        initial_state { name: "none" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }
    ]
"""


_ITERATIVE = "iterative_sequence: true"


# The examples of Triton's documentation: what is given, in one of them with the id at the end.
_EXAMPLE = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.sums = {}

        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            x = {t.name(): t.as_numpy().flat[0] for t in request.inputs()}
            id = request.correlation_id()
            if x["READY"]:
                self.sums[id] = x["INPUT"] if x["START"] else self.sums[id] + x["INPUT"]
            y = self.sums.get(id, 0) + (x["CORRID"] if x.get("END") else 0)
            y = pb_utils.Tensor("OUTPUT", np.array([[y]], np.int32))
            return pb_utils.InferenceResponse([y])
"""


@dataclass(frozen=True)
class Ensemble:
    """A model of one step."""

    config: str

    def write(self, directory: Path) -> None:
        (directory / "1").mkdir()
        (directory / "config.pbtxt").write_text(self.config)


SEQUENTIAL: dict[str, PythonModel | Ensemble] = {
    "simple_sequence": PythonModel(
        _EXAMPLE,
        "INPUT:INT32[1]",
        "OUTPUT:INT32[1]",
        """
        max_batch_size: 8
        sequence_batching {
          max_sequence_idle_microseconds: 5000000
          control_input [
            { name: "START" control [
                { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
            { name: "READY" control [
                { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] }
          ]
        }
        """,
    ),
    "simple_dyna_sequence": PythonModel(
        _EXAMPLE,
        "INPUT:INT32[1]",
        "OUTPUT:INT32[1]",
        """
        max_batch_size: 8
        sequence_batching {
          oldest { max_candidate_sequences: 1024 max_queue_delay_microseconds: 10000 }
          max_sequence_idle_microseconds: 10000000
          control_input [
            { name: "START" control [
                { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
            { name: "END" control [
                { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
            { name: "CORRID" control [
                { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] },
            { name: "READY" control [
                { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] }
          ]
        }
        """,
    ),
    "pipeline": Ensemble(
        """
        name: "pipeline" platform: "ensemble" max_batch_size: 4
        input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ]
        output [ { name: "B" data_type: TYPE_INT32 dims: [ 3 ] } ]
        ensemble_scheduling { step [ { model_name: "sums" model_version: -1
          input_map { key: "X" value: "A" } output_map { key: "Y" value: "B" } } ] }
        """
    ),
    "sums": PythonModel(_SUMS, "X:INT32[1]", "Y:INT32[3]", _sequences("direct {}")),
    "oldest": PythonModel(
        _SUMS, "X:INT32[1]", "Y:INT32[3]", _sequences("oldest { max_candidate_sequences: 9 }")
    ),
    "many": PythonModel(
        _SUMS,
        "X:INT32[1]",
        "Y:INT32[3]",
        _sequences("oldest { max_candidate_sequences: 200 }", rows=32),
        instances=4,
    ),
    "many_direct": PythonModel(
        _SUMS, "X:INT32[1]", "Y:INT32[3]", _sequences("direct {}", rows=32), instances=4
    ),
    "mortal": PythonModel(_SUMS, "X:INT32[1]", "Y:INT32[3]", _sequences("direct {}"), instances=2),
    "rows": PythonModel(_ROWS, "X:INT32[1]", "Y:STRING[1]", _sequences("direct {}")),
    "brief": PythonModel(_ROWS, "X:INT32[1]", "Y:STRING[1]", _sequences("direct {}", idle=0.2)),
    "texts": PythonModel(
        _ROWS, "X:INT32[1]", "Y:STRING[1]", _sequences("direct {}", id_type="TYPE_STRING")
    ),
    "passes": PythonModel(
        _PASSES, "X:INT32[1]", "Y:INT32[2]", _sequences("direct {}", more=_ITERATIVE)
    ),
    "numbers": PythonModel(
        _NUMBERS,
        "X:INT32[1]",
        "Y:INT32[2]",
        DECOUPLED + _sequences("oldest { max_candidate_sequences: 8 }", more=_ITERATIVE),
    ),
    "caller": PythonModel(_CALLER, "X:INT32[1]", "Y:INT32[3]"),
    "kept": PythonModel(
        _KEPT,
        "X:INT32[1]",
        "Y:INT32[1] COUNT_OUT:INT32[1]",
        _sequences("direct {}", more=_STATES),
        files={"../initial_state/count": "\x05\0\0\0"},
    ),
    "kept_oldest": PythonModel(
        _KEPT,
        "X:INT32[1]",
        "Y:INT32[1] COUNT_OUT:INT32[1]",
        _sequences("oldest {}", more=_STATES.replace('data_file: "count"', "zero_data: true")),
    ),
}


def sequential(*names: str) -> dict[str, PythonModel | Ensemble]:
    """These models."""
    return {name: SEQUENTIAL[name] for name in names}


BOTH = pytest.mark.parametrize("model", ["sums", "oldest"])


def row(x: int) -> dict[str, Array]:
    return {"X": ints(x).reshape(1, 1)}


def options(id: int | str, at: int = 1, of: int = 3) -> dict[str, Any]:
    """Those of one request of a sequence; the first is number 0."""
    return {"sequence_id": id, "sequence_start": at == 0, "sequence_end": at == of - 1}


def sums(client: Client, model: str, id: int | str, *numbers: int) -> list[int]:
    """What a model adds up in one sequence."""
    asked = [(row(x), options(id, at, len(numbers))) for at, x in enumerate(numbers)]
    return [int(client.infer(model, x, **how)["Y"].flat[-1]) for x, how in asked]

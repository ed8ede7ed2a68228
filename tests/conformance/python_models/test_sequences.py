"""Sequences of Python models, asked for by the stock clients (contract area N)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from conformance.python_models.client import Array, Client, RefusedError, ints
from conformance.python_models.repository import DECOUPLED, PythonModel
from serving import Served, alive, wait_until

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
    strategy: str, *, rows: int = 4, idle: float = 5.0, id_type: str = "TYPE_UINT64", more: str = ""
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


MODELS: dict[str, PythonModel | Ensemble] = {
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
        _sequences("oldest { max_candidate_sequences: 200 }", rows=32, idle=60.0),
        instances=4,
    ),
    "many_direct": PythonModel(
        _SUMS, "X:INT32[1]", "Y:INT32[3]", _sequences("direct {}", rows=32), instances=4
    ),
    "mortal": PythonModel(_SUMS, "X:INT32[1]", "Y:INT32[3]", _sequences("direct {}"), instances=2),
    "rows": PythonModel(_ROWS, "X:INT32[1]", "Y:STRING[1]", _sequences("direct {}", idle=0.5)),
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


# -- requests ------------------------------------------------------------------------------------


@pytest.mark.contract("S-01", "GP-01", "GP-02")
@BOTH
@pytest.mark.parametrize("id", [7, (1 << 63) - 1, -7, "seven"])
def test_a_model_has_a_state_for_each_sequence(client: Client, model: str, id: int | str) -> None:
    assert sums(client, model, id, 1, 2, 3) == [1, 3, 6]


@pytest.mark.contract("GP-17")
@BOTH
def test_a_sequence_on_one_stream_is_answered_in_order(client: Client, model: str) -> None:
    talk = client.talk(model, [(row(x), options(8, x, 50)) for x in range(50)])
    assert [int(answer["Y"].flat[-1]) for answer in talk] == [*accumulate(range(50))]


@pytest.mark.contract("X-06", "HI-15")
@pytest.mark.parametrize("id", [9, "nine"])
def test_sequences_over_http(server: Served, id: int | str) -> None:
    with Client(server.http, "http") as client:
        assert sums(client, "sums", id, 4, 5, 6) == [4, 9, 15]


@pytest.mark.contract("PY-31", "PY-14")
def test_a_model_hands_on_the_sequence_that_it_is_asked_in(client: Client) -> None:
    asked = [({"X": ints(x)}, options(10, at)) for at, x in enumerate((3, 4, 5))]
    answers = [client.infer("caller", x, **how)["Y"] for x, how in asked]
    assert [int(answer[-1]) for answer in answers] == [3, 7, 12]
    refused = client.refusal("caller", {"X": ints(1)}, sequence_id=11)
    assert "must specify the START flag" in refused.message


@pytest.mark.contract("S-09")
def test_a_sequence_that_idles_ends(client: Client) -> None:
    client.infer("rows", row(1), **options(20, 0))

    def ended() -> bool:
        """Asked rarely, since asking is a sign of life."""
        try:
            client.infer("rows", row(2), **options(20))
        except RefusedError as refused:
            return refused.message.endswith("START flag on the first request of the sequence")
        return False

    assert not ended()
    time.sleep(0.8)
    assert ended()


@pytest.mark.contract("S-24")
@pytest.mark.parametrize(
    ("model", "adds_id"), [("simple_sequence", False), ("simple_dyna_sequence", True)]
)
def test_the_examples_of_the_documentation(client: Client, model: str, adds_id: bool) -> None:
    numbers = (11, 7, 5, 3, 2, 0, 1)
    for sign, id in ((1, 1000), (-1, 1001)):
        requests = [
            ({"INPUT": ints(sign * x).reshape(1, 1)}, options(id, at, len(numbers)))
            for at, x in enumerate(numbers)
        ]
        told = [int(answer["OUTPUT"].item()) for answer in client.talk(model, requests)]
        expected = [*accumulate(sign * x for x in numbers)]
        expected[-1] += id * adds_id
        assert told == expected


@pytest.mark.contract("S-21", "E-12")
def test_an_ensemble_hands_on_the_sequence_to_its_steps(client: Client) -> None:
    asked = [({"A": ints(x).reshape(1, 1)}, options(12, at)) for at, x in enumerate((3, 4, 5))]
    answers = [client.infer("pipeline", x, **how)["B"] for x, how in asked]
    assert [int(answer.flat[-1]) for answer in answers] == [3, 7, 12]


# -- what a model is told ------------------------------------------------------------------------


@pytest.mark.contract("S-13", "S-11")
def test_rows_of_a_batch_are_the_slots(client: Client) -> None:
    for id in (31, 32):
        client.infer("rows", row(id), **options(id, 0))
    (text,) = client.infer("rows", row(7), **options(32))["Y"].flat
    assert text == b"[[0, 0, 0, 0, 0], [7, 0, 0, 1, 32]]"
    counted = client.call("get_inference_statistics", model_name="rows", as_json=True)
    batches = counted["model_stats"][0]["batch_stats"]
    assert {batch["batch_size"] for batch in batches} == {"1", "2"}
    client.infer("rows", row(8), **options(31, 2))
    client.infer("rows", row(8), **options(32, 2))


@pytest.mark.contract("S-12")
def test_a_model_may_take_ids_as_texts(client: Client) -> None:
    (text,) = client.infer("texts", row(1), sequence_id="Zoë", sequence_start=True)["Y"].flat
    assert text.decode() == '[[1, 1, 0, 1, "Zo\\u00eb"]]'
    client.infer("texts", row(1), sequence_id="Zoë", sequence_end=True)


# -- many ----------------------------------------------------------------------------------------


@pytest.mark.contract("S-01", "S-06", "S-07")
@pytest.mark.parametrize("model", ["many", "many_direct"])
def test_a_thousand_interleaved_sequences_see_their_own_states(client: Client, model: str) -> None:
    """There are fewer slots, so some wait until others have ended."""
    streams, steps = 8, 4
    orders = []
    for stream in range(streams):
        asked = list(_interleaved(range(1 + stream, 1001, streams), steps))
        requests = [(row(id * at), options(id, at, steps)) for id, at in asked]
        orders.append((asked, client.talk(model, requests)))
    homes: dict[int, int] = {}
    for asked, order in orders:
        for id, at in asked:
            pid, count, total = order.next_event(120)["Y"].flat
            assert (count, total) == (at + 1, id * sum(range(at + 1)))
            assert homes.setdefault(id, pid) == pid
    assert (len(homes), len(set(homes.values()))) == (1000, 4)


def _interleaved(ids: Sequence[int], steps: int) -> Iterator[tuple[int, int]]:
    """Every step of every sequence, in another order of the sequences at each."""
    for at in range(steps):
        for number in range(len(ids)):
            yield ids[(number * 7 + at * 13) % len(ids)], at


# -- requests that come again --------------------------------------------------------------------


@pytest.mark.contract("S-20", "PY-28")
def test_a_request_comes_again_until_the_model_has_done_with_it(client: Client) -> None:
    orders = [client.begin("passes", row(x)) for x in (3, 1, 7, 2, 5, 4)]
    answers = [order.result()["Y"].tolist() for order in orders]
    assert answers == [[[3, 0]], [[1, 1]], [[7, 0]], [[2, 0]], [[5, 0]], [[4, 0]]]


@pytest.mark.contract("S-20")
def test_an_iterative_sequence_with_an_id_ends_with_its_request(client: Client) -> None:
    how = {"sequence_id": 40, "sequence_start": True}
    assert client.infer("passes", row(3), **how)["Y"].tolist() == [[3, 0]]
    refused = client.refusal("passes", row(3), sequence_id=40)
    assert "must specify the START flag" in refused.message


@pytest.mark.contract("PY-28")
def test_an_answer_to_a_request_that_comes_again_is_an_error(client: Client) -> None:
    refused = client.refusal("passes", row(-1))
    assert "Expected a None object in the execute function return list for resch" in refused.message
    assert client.infer("passes", row(2))["Y"].tolist() == [[2, 0]]


@pytest.mark.contract("S-20", "PY-28")
def test_a_model_that_streams_batches_requests_that_are_at_different_places(
    client: Client,
) -> None:
    orders = [client.stream("numbers", row(x)) for x in (40, 5, 20)]
    answers = [[answer for answer in order if answer.outputs] for order in orders]
    told = [[int(answer["Y"][0, 0]) for answer in each] for each in answers]
    assert told == [[*range(1, x + 1)] for x in (40, 5, 20)]
    assert max(answer["Y"][0, 1] for each in answers for answer in each) > 1
    finals = [[answer.parameters["triton_final_response"] for answer in each] for each in answers]
    assert [flags.index(True) for flags in finals] == [39, 4, 19]


@pytest.mark.contract("S-10", "S-20")
def test_a_client_that_leaves_ends_what_would_come_again(client: Client) -> None:
    endless = client.stream("numbers", row(1_000_000))
    for _ in range(20):
        endless.next_event()
    endless.cancel()
    wait_until(lambda: _pending(client, "numbers") == 0)
    assert len(client.answers("numbers", row(3))) == 3


def _pending(client: Client, model: str) -> int:
    """Requests that were begun and are neither answered nor failed."""
    stats = client.call("get_inference_statistics", model_name=model, as_json=True)
    before = _counted(stats)
    again = _counted(client.call("get_inference_statistics", model_name=model, as_json=True))
    return int(before != again)


def _counted(stats: Any) -> str:
    return str(stats["model_stats"][0]["execution_count"])


# -- states that the server keeps ----------------------------------------------------------------


@pytest.mark.contract("S-16", "S-17", "S-18")
@pytest.mark.parametrize(("model", "first"), [("kept", 5), ("kept_oldest", 0)])
def test_the_server_keeps_the_state_of_a_sequence(client: Client, model: str, first: int) -> None:
    """Of fixed and of growing length; a state that is an output as well is shown."""
    for id in (50, 51):
        client.infer(model, row(id), **options(id, 0))
    for id in (51, 50):
        answer = client.infer(model, row(1), **options(id))
        assert {name: array.tolist() for name, array in answer.outputs.items()} == {
            "Y": [[id + 1]],
            "COUNT_OUT": [[first + 2]],
        }
        client.infer(model, row(1), **options(id, 2))


@pytest.mark.contract("S-16")
def test_states_are_kept_whatever_outputs_are_asked_for(client: Client) -> None:
    answers = [
        client.infer("kept", row(x), outputs=["Y"], **options(52, at))
        for at, x in enumerate((1, 2, 3))
    ]
    assert [[*answer.outputs] for answer in answers] == [["Y"]] * 3
    assert [answer["Y"].item() for answer in answers] == [1, 3, 6]


@pytest.mark.contract("S-16")
def test_an_error_leaves_the_state_as_it_was(client: Client) -> None:
    client.infer("kept", row(4), **options(53, 0))
    assert "no such number" in client.refusal("kept", row(-1), **options(53)).message
    assert client.infer("kept", row(5), **options(53, 2))["Y"].item() == 9


# -- processes that die --------------------------------------------------------------------------


def test_a_process_that_dies_takes_its_sequences_along(client: Client) -> None:
    """Those of the other go on, and a new one may have the same id."""
    homes = {id: client.infer("mortal", row(1), **options(id, 0))["Y"][0, 0] for id in (60, 61)}
    assert homes[60] != homes[61]
    os.kill(int(homes[60]), signal.SIGKILL)
    wait_until(lambda: not alive(int(homes[60])))
    wait_until(lambda: client.ready("mortal"))
    refused = client.refusal("mortal", row(2), **options(60))
    assert (refused.code, refused.message) == (
        "UNAVAILABLE",
        "sequence 60 of model 'mortal' was lost when instance 'mortal_0_0' went down; it has to be"
        " started again",
    )
    assert client.infer("mortal", row(5), **options(61))["Y"][0].tolist() == [homes[61], 2, 6]
    assert sums(client, "mortal", 60, 1, 2) == [1, 3]

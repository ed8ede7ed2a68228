"""The counters of models, as they are after work whose outcome is known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from harness.repeat_model import REPEAT
from harness.serving import Served, serving, wait_until

_MODEL = """\
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.hold = os.path.join(args["model_repository"], "hold")

    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if value.flat[0] < 0:
                raise ValueError("no negative numbers")
            time.sleep(float(value.flat[0]))
            while os.path.exists(self.hold):
                open(self.hold + "s", "w").close()
                time.sleep(0.002)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        return responses
"""

_CONFIG = """\
backend: "{backend}"
max_batch_size: 8
{more}
input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }} ]
"""

_LATE = """\
import threading
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            threading.Thread(target=self.send, args=(sender, value)).start()
        time.sleep(0.05)

    def send(self, sender, value):
        time.sleep(0.05)
        for _ in range(2):
            time.sleep(float(value.flat[0]))
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_COUNTED = """\
parameters { key: "penstock.response_statistics" value: { string_value: "true" } }
"""

_BATCHING = """\
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 60000000 }
parameters { key: "execute_delay_ms" value: { string_value: "20" } }"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models in a process, one that batches in a thread, and `repeat`."""
    models = tmp_path_factory.mktemp("statistics") / "models"
    configs = {
        "process": _CONFIG.format(backend="python", more=""),
        "thread": _CONFIG.format(backend="identity", more=_BATCHING),
        "repeat": REPEAT + _COUNTED,
        "late": _CONFIG.format(
            backend="python", more="model_transaction_policy { decoupled: true }"
        ),
    }
    for name, config in configs.items():
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(config)
    (models / "process" / "1" / "model.py").write_text(_MODEL)
    (models / "late" / "1" / "model.py").write_text(_LATE)
    return models


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Served]:
    with serving(models, models.parent / "log", "--model-control-mode=explicit") as served:
        yield served


@pytest.fixture
def client(server: Served) -> Iterator[Any]:
    """Of a server whose models nobody has asked for anything."""
    with grpcclient.InferenceServerClient(server.grpc) as client:
        for model in ("process", "thread", "repeat"):
            client.load_model(model)
        yield client
        for model in ("process", "thread", "repeat"):
            client.unload_model(model)


def infer(client: Any, model: str, value: float, rows: int = 1, **options: Any) -> None:
    tensor = grpcclient.InferInput("IN", [rows, 1], "FP32")
    tensor.set_data_from_numpy(np.full((rows, 1), value, np.float32))
    client.infer(model, [tensor], **options)


def begin(client: Any, model: str, value: float) -> Any:
    """As `infer`, without waiting; what can be cancelled."""
    tensor = grpcclient.InferInput("IN", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
    return client.async_infer(model, [tensor], lambda result, error: None)


def counted(client: Any, model: str) -> Any:
    (found,) = client.get_inference_statistics(model).model_stats
    return found


def counts(model: Any) -> dict[str, int]:
    stats = model.inference_stats
    return {field.name: getattr(stats, field.name).count for field in stats.DESCRIPTOR.fields}


def page_of(server: Served, model: str) -> dict[str, float]:
    """The metrics of a model, by name."""
    families = text_string_to_metric_families(httpx.get(server.metrics).text)
    samples = [sample for family in families for sample in family.samples]
    return {
        s.name.removesuffix("_total"): s.value for s in samples if s.labels.get("model") == model
    }


NOTHING = dict.fromkeys(
    "success fail queue compute_input compute_infer compute_output cache_hit cache_miss".split(), 0
)


def executed(number: int) -> dict[str, int]:
    """What so many executed requests count."""
    parts = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    return NOTHING | dict.fromkeys(parts, number)


@pytest.mark.contract("ST-01", "ST-02", "ST-03")
def test_requests_rows_and_executions_are_told_apart(client: Any) -> None:
    assert counts(counted(client, "process")) == NOTHING
    assert counted(client, "process").last_inference == 0
    before = time.time_ns() // 1_000_000
    for rows in (1, 1, 4):
        infer(client, "process", 0.01, rows)
    model = counted(client, "process")
    assert counts(model) == executed(3)
    assert (model.inference_count, model.execution_count) == (6, 3)
    assert before <= model.last_inference <= time.time_ns() // 1_000_000
    assert {b.batch_size: b.compute_infer.count for b in model.batch_stats} == {1: 2, 4: 1}


@pytest.mark.contract("ST-02", "ST-07")
@pytest.mark.parametrize("model", ["process", "thread"])
def test_parts_of_a_request_take_no_longer_than_it(client: Any, model: str) -> None:
    infer(client, model, 0.02, 4)
    found = counted(client, model)
    stats = found.inference_stats
    parts = (stats.queue, stats.compute_input, stats.compute_infer, stats.compute_output)
    assert all(part.ns > 0 for part in parts)
    # The loop's timers count whole milliseconds: `thread` may wake one before its 20 are over.
    assert stats.compute_infer.ns >= 18_000_000
    assert sum(part.ns for part in parts) <= stats.success.ns
    (batch,) = found.batch_stats
    assert 18_000_000 <= batch.compute_infer.ns <= stats.success.ns


@pytest.mark.contract("ST-03", "ST-07")
def test_requests_of_a_batch_wait_each_for_itself(client: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        for waiting in [pool.submit(infer, client, "thread", 0) for _ in range(4)]:
            waiting.result(60)
    model = counted(client, "thread")
    assert counts(model) == executed(4)
    assert (model.inference_count, model.execution_count) == (4, 1)
    (batch,) = model.batch_stats
    assert (batch.batch_size, batch.compute_infer.count) == (4, 1)
    # Each request has had the whole execution.
    assert model.inference_stats.compute_infer.ns >= 4 * batch.compute_infer.ns


@pytest.mark.contract("ME-38")
def test_dashboards_derive_requests_batches_and_times_in_the_queue(
    client: Any, server: Served
) -> None:
    before = page_of(server, "thread")
    with ThreadPoolExecutor(4) as pool:
        for waiting in [pool.submit(infer, client, "thread", 0, rows=2) for _ in range(2)]:
            waiting.result(60)
    infer(client, "thread", 0, rows=4)
    after = page_of(server, "thread")
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    assert grown["nv_inference_request_success"] == 3
    assert grown["nv_inference_count"] / grown["nv_inference_exec_count"] == 4
    queued = grown["nv_inference_queue_duration_us"] / grown["nv_inference_request_success"]
    queue = counted(client, "thread").inference_stats.queue
    assert queued == pytest.approx(queue.ns / queue.count / 1000, abs=1)


@pytest.mark.contract("ST-06")
def test_failures_count_where_they_were_executed(client: Any) -> None:
    """As an execution of a batch, but not as an inference; a refused request is none at all."""
    infer(client, "process", 0)
    with pytest.raises(InferenceServerException, match="no negative numbers"):
        infer(client, "process", -1)
    with pytest.raises(InferenceServerException, match="batch-size must be <= 8"):
        infer(client, "process", 0, 9)
    model = counted(client, "process")
    assert counts(model) == executed(1) | {"fail": 1}
    assert (model.inference_count, model.execution_count) == (1, 2)
    assert [(b.batch_size, b.compute_infer.count) for b in model.batch_stats] == [(1, 2)]
    assert model.inference_stats.fail.ns > 0


@pytest.mark.contract("CC-13")
@pytest.mark.contract("ST-06")
def test_cancelled_requests_are_failures(client: Any, models: Path) -> None:
    (models / "process" / "hold").touch()
    asked = begin(client, "process", 0)
    wait_until((models / "process" / "holds").exists)
    asked.cancel()
    (models / "process" / "hold").unlink()
    wait_until(lambda: counts(counted(client, "process"))["fail"] == 1)
    assert counts(counted(client, "process"))["success"] == 0


@pytest.mark.contract("DC-05")
@pytest.mark.contract("ST-04", "ST-01")
def test_decoupled_request_is_one_inference_of_many_responses(client: Any) -> None:
    repeat_over_grpc(client, 3)
    model = counted(client, "repeat")
    assert counts(model) == executed(1)
    assert (model.inference_count, model.execution_count) == (1, 1)
    assert model.inference_stats.success.ns >= 60_000_000
    assert compute_times(model.inference_stats) == compute_times(*model.batch_stats)
    each = {int(index): one.success for index, one in model.response_stats.items()}
    assert sorted(index for index, one in each.items() if one.count) == [0, 1, 2]
    assert all(one.ns >= 15_000_000 for one in each.values() if one.count)


def repeat_over_grpc(client: Any, count: int) -> None:
    """Ask for so many responses, and wait for them."""
    responses: SimpleQueue[Any] = SimpleQueue()
    tensors = [grpcclient.InferInput("IN", [count], "INT32")]
    tensors[0].set_data_from_numpy(np.zeros(count, np.int32))
    for name, size in (("DELAY", count), ("WAIT", 1)):
        tensors.append(grpcclient.InferInput(name, [size], "UINT32"))
        tensors[-1].set_data_from_numpy(np.full(size, 20, np.uint32))
    client.start_stream(lambda result, error: responses.put(error))
    client.async_stream_infer("repeat", tensors)
    assert [responses.get(timeout=60) for _ in range(count)] == [None] * count
    client.stop_stream()


def repeat_over_http(server: Served, call: str, count: int) -> httpx.Response:
    """The same by a call of the HTTP port."""
    body = {"IN": [0] * count, "DELAY": [20] * count, "WAIT": 20}
    return httpx.post(
        f"http://{server.http}/v2/models/repeat/{call}", json=body, timeout=60, verify=False
    )


def tally(model: Any) -> list[Any]:
    """All counts of a model: of requests, inferences, executions, and responses by their place."""
    places = {
        place: [getattr(one, kind).count for kind in ("success", "fail", "empty_response")]
        for place, one in sorted(model.response_stats.items())
    }
    return [counts(model), model.inference_count, model.execution_count, places]


@pytest.mark.contract("ST-04", "ST-01")
@pytest.mark.parametrize(("call", "count"), [("generate_stream", 3), ("generate", 1)])
def test_what_is_generated_over_http_is_counted_as_over_grpc(
    client: Any, server: Served, call: str, count: int
) -> None:
    repeat_over_grpc(client, count)
    expected = tally(counted(client, "repeat"))
    assert expected[:3] == [executed(1), 1, 1]
    client.unload_model("repeat")
    client.load_model("repeat")
    assert repeat_over_http(server, call, count).status_code == 200
    assert tally(counted(client, "repeat")) == expected


@pytest.mark.contract("ST-04", "HG-07")
def test_generate_that_gets_several_responses_cancels_its_request(
    client: Any, server: Served
) -> None:
    """Nobody wants the rest; Triton lets the model go on, and counts a success."""
    assert repeat_over_http(server, "generate", 3).status_code == 400
    wait_until(lambda: counts(counted(client, "repeat"))["fail"] == 1)
    assert counts(counted(client, "repeat"))["success"] == 0


@pytest.mark.contract("DC-05", "ST-02")
def test_times_of_a_decoupled_request_are_those_of_its_execution(client: Any) -> None:
    """Also where a thread of the model goes on sending; the request's whole time has it in."""
    responses: SimpleQueue[Any] = SimpleQueue()
    tensor = grpcclient.InferInput("IN", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.full((1, 1), 0.1, np.float32))
    client.load_model("late")
    client.start_stream(lambda result, error: responses.put(error))
    client.async_stream_infer("late", [tensor])
    assert [responses.get(timeout=60) for _ in range(2)] == [None] * 2
    client.stop_stream()
    wait_until(lambda: counts(counted(client, "late")) == executed(1))
    model = counted(client, "late")
    assert compute_times(model.inference_stats) == compute_times(*model.batch_stats)
    assert model.inference_stats.success.ns >= 200_000_000


def compute_times(*statistics: Any) -> list[int]:
    """The times of the three phases of an execution, in nanoseconds."""
    (times,) = statistics
    return [getattr(times, f"compute_{phase}").ns for phase in ("input", "infer", "output")]


@pytest.mark.contract("ME-34")
@pytest.mark.contract("ST-09")
def test_reloading_starts_from_zero(models: Path, client: Any) -> None:
    infer(client, "process", 0)
    code = models / "process" / "1" / "model.py"
    code.write_text(_MODEL + "\n")
    client.load_model("process")
    assert counts(counted(client, "process")) == NOTHING
    assert counted(client, "process").execution_count == 0

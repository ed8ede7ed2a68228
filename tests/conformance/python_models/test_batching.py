"""Queue policies and batches, asked of a real server as a client would."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import pytest

from conformance.python_models.client import Answer, Client, Order
from conformance.python_models.repository import PythonModel, parameter
from harness.serving import Served, wait_until

_COUNTING = """
    import itertools, os, time
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]
            self.batches = itertools.count()

        def wait(self):
            open(os.path.join(self.directory, "begun"), "w").close()
            while not os.path.exists(os.path.join(self.directory, "gate")):
                time.sleep(0.002)

        def execute(self, requests):
            batch = next(self.batches)
            answers = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
                if x.flat[0]:
                    self.wait()
                seen = np.array([[batch, len(requests), x.size]], np.float32)
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", seen)]))
            return answers
"""
"""Answers with the number of its batch, how many were in it, and the size of its own input.

A number other than 0 waits for the file `gate`, and tells in the file `begun` that it does.
"""


def _model(batching: str, rows: int = 1, *, instances: int = 1, more: str = "") -> PythonModel:
    config = f"max_batch_size: {rows}\ndynamic_batching {{ {batching} }}\n{more}"
    return PythonModel(_COUNTING, config=config, instances=instances)


_OVERRIDABLE = """
    default_queue_policy { default_timeout_microseconds: 60000000 allow_timeout_override: true }
"""
_LEVELS = """
    priority_levels: 3 default_priority_level: 2
    priority_queue_policy { key: 1 value { max_queue_size: 1 } }
"""
MODELS = {
    "full": _model("default_queue_policy { max_queue_size: 2 }"),
    "hurried": _model(_OVERRIDABLE),
    "levels": _model(_LEVELS),
    "ordered": _model("preserve_ordering: true", instances=2),
    "late": _model(
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000 }"
    ),
    "lengths": PythonModel(
        _COUNTING,
        inputs="",
        config="max_batch_size: 8\n"
        'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n'
        + parameter("penstock.length_buckets", "4,8")
        + parameter("penstock.max_batch_elements", 12)
        + "dynamic_batching { }",
    ),
    "shapes": _model("", 8, more='metric_tags { key: "team" value: "blue" }'),
    "large": _model("preferred_batch_size: 4 max_queue_delay_microseconds: 600000000", 8),
    "ragged": PythonModel(
        _COUNTING,
        inputs="",
        config="max_batch_size: 8\n"
        'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n'
        "dynamic_batching { preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 20000000 }",
    ),
}


def _x(size: int = 1) -> dict[str, Any]:
    return {"X": np.zeros((1, size), np.float32)}


_WAITING = {"X": np.ones((1, 1), np.float32)}


def _release(repository: Path, model: str) -> None:
    """Let requests go that wait in the model, and all that come later."""
    (repository / model / "gate").touch()


def _metric(server: Served, name: str, model: str) -> float:
    page = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
    found = re.search(rf'^{name}{{[^}}]*\bmodel="{model}",[^}}]*}} (\S+)$', page, re.MULTILINE)
    assert found, page
    return float(found[1])


def _batch(order: Order) -> list[int]:
    answer: Answer = order.result()
    return [int(value) for value in answer["Y"][0]]


def _wait_for_pending(server: Served, model: str, count: int) -> None:
    wait_until(lambda: _metric(server, "nv_inference_pending_request_count", model) == count)


@pytest.mark.contract("D-11", "ME-07")
def test_a_full_queue_refuses_over_both_protocols(
    client: Client, server: Served, repository: Path
) -> None:
    begun = [client.begin("full", _WAITING) for _ in range(2)]
    _wait_for_pending(server, "full", 1)
    third = client.begin("full", _x())
    _wait_for_pending(server, "full", 2)
    refused = client.begin("full", _x(), request_id="late").error()
    assert (refused.code, refused.message) == (
        "UNAVAILABLE",
        "[request id: late] Exceeds maximum queue size",
    )
    assert _over_http(server, "full") == (
        503,
        "[request id: <id_unknown>] Exceeds maximum queue size",
    )
    _release(repository, "full")
    assert sorted(_batch(order)[0] for order in begun) == [0, 1]
    assert _batch(third)[0] == 2
    reason = 'nv_inference_request_failure{model="full",reason="REJECTED",version="1"} 2\n'
    assert reason in urllib.request.urlopen(server.metrics, timeout=60).read().decode()


def _over_http(server: Served, model: str) -> tuple[int, str]:
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [0]}
    body = json.dumps({"inputs": [tensor]}).encode()
    try:
        urllib.request.urlopen(f"http://{server.http}/v2/models/{model}/infer", body, timeout=60)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]
    raise AssertionError("the request was not refused")


@pytest.mark.contract("D-12", "D-14")
def test_a_request_that_hurries_is_rejected_while_the_instance_is_busy(
    client: Client, repository: Path
) -> None:
    before = client.begin("hurried", _WAITING)
    wait_until((repository / "hurried" / "begun").exists)
    hurried = client.begin("hurried", _x(), timeout=1000)
    patient = client.begin("hurried", _x())
    error = hurried.error()
    assert (error.code, error.message) == ("UNAVAILABLE", "Request timeout expired")
    _release(repository, "hurried")
    assert [_batch(before)[1], _batch(patient)[1]] == [1, 1]


@pytest.mark.contract("D-13")
def test_a_late_request_is_answered_where_it_is_only_delayed(
    client: Client, server: Served, repository: Path
) -> None:
    before = client.begin("late", _WAITING)
    wait_until((repository / "late" / "begun").exists)
    late = client.begin("late", _x())
    _wait_for_pending(server, "late", 1)
    _release(repository, "late")
    assert [_batch(before)[1], _batch(late)[1]] == [1, 1]


def test_requests_share_a_batch_by_length_and_as_their_elements_allow(
    client: Client, server: Served, repository: Path
) -> None:
    before = client.begin("lengths", _WAITING)
    wait_until((repository / "lengths" / "begun").exists)
    orders = [client.begin("lengths", _x(size=size)) for size in (2, 3, 6, 7)]
    _wait_for_pending(server, "lengths", 4)
    _release(repository, "lengths")
    assert [_batch(order)[1] for order in (before, *orders)] == [1, 2, 2, 1, 1]


@pytest.mark.contract("D-09", "D-10")
def test_urgent_requests_are_first_and_their_level_has_its_own_bound(
    client: Client, server: Served, repository: Path
) -> None:
    begun = [client.begin("levels", _WAITING) for _ in range(2)]
    _wait_for_pending(server, "levels", 1)
    low = client.begin("levels", _x(), priority=3)
    usual = client.begin("levels", _x())
    _wait_for_pending(server, "levels", 3)
    urgent = client.begin("levels", _x(), priority=1)
    _wait_for_pending(server, "levels", 4)
    assert client.begin("levels", _x(), priority=1).error().message.endswith("queue size")
    _release(repository, "levels")
    assert sorted(_batch(order)[0] for order in begun) == [0, 2]
    assert [_batch(order)[0] for order in (urgent, usual, low)] == [1, 3, 4]


@pytest.mark.contract("D-08")
def test_order_is_kept_over_two_instances(client: Client, server: Served, repository: Path) -> None:
    slow = client.begin("ordered", _WAITING)
    wait_until((repository / "ordered" / "begun").exists)
    quick = client.begin("ordered", _x())
    wait_until(lambda: _metric(server, "nv_inference_exec_count", "ordered") == 1)
    with pytest.raises(Empty):
        quick.next_event(timeout=0.2)
    _release(repository, "ordered")
    assert [_batch(order)[1] for order in (slow, quick)] == [1, 1]


@pytest.mark.contract("C-12", "PY-40")
def test_ragged_requests_share_a_batch_and_keep_their_shapes(client: Client) -> None:
    orders = [client.begin("ragged", _x(size=size)) for size in (1, 3, 2)]
    assert [_batch(order) for order in orders] == [[0, 3, 1], [0, 3, 3], [0, 3, 2]]


@pytest.mark.contract("D-06")
def test_requests_of_unequal_shapes_share_no_batch(
    client: Client, server: Served, repository: Path
) -> None:
    before = client.begin("shapes", _WAITING)
    wait_until((repository / "shapes" / "begun").exists)
    orders = [client.begin("shapes", _x(size=size)) for size in (2, 2, 3)]
    _wait_for_pending(server, "shapes", 3)
    _release(repository, "shapes")
    assert [_batch(order) for order in (before, *orders)] == [
        [0, 1, 1],
        [1, 2, 2],
        [1, 2, 2],
        [2, 1, 3],
    ]


@pytest.mark.contract("C-31")
def test_tags_of_a_configuration_are_labels_on_the_page(server: Served) -> None:
    page = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
    models = re.findall(r'^nv_\w+{_team="blue",model="(\w+)"', page, re.MULTILINE)
    assert set(models) == {"shapes"}


@pytest.mark.contract("D-05")
def test_a_request_beyond_the_preferred_size_does_not_wait(client: Client, server: Served) -> None:
    """Nor does what waits in front of it; the delay is longer than the test's patience."""
    small = client.begin("large", _x())
    _wait_for_pending(server, "large", 1)
    large = client.begin("large", {"X": np.zeros((6, 1), np.float32)})
    assert [_batch(small), _batch(large)] == [[0, 1, 1], [1, 1, 6]]
    assert _batch(client.begin("large", {"X": np.zeros((5, 1), np.float32)})) == [2, 1, 5]

"""Models that call other models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from conformance.python_models.client import Client, floats, strings
from conformance.python_models.shared_memory import shared_memory
from harness.serving import Served, wait_until

# -- one answer -----------------------------------------------------------------------------------


@pytest.mark.contract("PY-13")
@pytest.mark.parametrize("size", [1, 1 << 10, 1 << 18], ids=["small", "4 KiB", "1 MiB"])
def test_model_answers_with_the_answer_of_another(client: Client, size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    assert (client.infer("caller", {"X": x}, request_id="negate")["Y"] == -x).all()


@pytest.mark.contract("PY-12")
def test_called_model_sees_what_the_caller_said(client: Client) -> None:
    seen = client.infer("caller", {"X": floats(1)}, request_id="negate").parameters["seen"]
    assert seen == '["inner", 5, 3, 9000000, {"from": "caller"}]'


@pytest.mark.contract("PY-12", "PY-32")
def test_names_may_be_bytes_or_texts_of_numpy(client: Client) -> None:
    answer = client.infer("other_text", {"X": floats(4)})
    assert answer["Y"].tolist() == [-4]
    seen = '["inner", 0, 0, 0, {"by": "caller"}, true, false]'
    assert answer.parameters["seen"] == seen
    assert client.refusal("other_text", {"X": floats(13)}).message == "unlucky"


@pytest.mark.contract("PY-19")
@pytest.mark.parametrize(
    ("model", "x", "told"),
    [
        ("negate", 13, "[3] unlucky"),
        (
            "nobody",
            1,
            "[2] Model nobody - Error when running inference: Failed for execute the inference"
            " request. Model 'nobody' is not ready.",
        ),
        (
            "repeat",
            1,
            "[3] Model repeat - Error when running inference: Model repeat is using the decoupled.",
        ),
        (
            "matrix",
            1,
            "[3] Model matrix - Error when running inference: [request id: inner] unexpected shape"
            " for input 'X' for model 'matrix'. Expected [2,2], got [1]. ",
        ),
    ],
)
def test_refusal_of_the_called_model_is_an_error_with_its_code(
    client: Client, model: str, x: float, told: str
) -> None:
    error = client.refusal("caller", {"X": floats(x)}, request_id=model)
    assert error.code == "INTERNAL"
    assert f"message: TritonModelException: {told}" in error.message


@pytest.mark.contract("PY-13", "PY-15", "SD-03")
@pytest.mark.parametrize("name", ["async", "async_streams", "threads"])
def test_several_calls_are_in_flight_at_once(client: Client, repository: Path, name: str) -> None:
    for path in (repository / "meeting").glob("*.here"):
        path.unlink()
    assert sorted(client.infer(name, {"X": floats(4)})["Y"].tolist()) == [4, 5]


@pytest.mark.contract("PY-14")
def test_model_may_call_only_while_it_executes(client: Client) -> None:
    told = client.infer("at_the_wrong_time")["TEXT"][0]
    assert told == b"BLS is only supported during the 'execute' function."


def test_many_calls_of_one_execution_take_no_more_memory_than_a_few(
    client: Client, server: Served
) -> None:
    before = shared_memory(server)
    assert client.infer("often")["Y"].tolist() == [-30_000]
    assert shared_memory(server) - before <= 4 << 20


def test_call_that_a_coroutine_gives_up_is_cancelled(client: Client, repository: Path) -> None:
    assert client.infer("no_patience", {"X": floats(4)})["Y"].tolist() == [-4]
    (repository / "gated" / "gate").touch()
    assert client.infer("gated", {"X": floats(5)})["Y"].tolist() == [5]


def test_work_that_comes_while_a_coroutine_blocks_is_done(client: Client, repository: Path) -> None:
    gated = repository / "gated"
    blocked = client.stream("blocked_loop", {"X": floats(1)})
    wait_until((gated / "later.begun").exists)
    waiting = [client.stream("blocked_loop", {"X": floats(-n)}) for n in range(4)]
    client.infer("negate")  # what was asked before it is in the model's hands now
    (gated / "later").touch()
    assert blocked.result()["Y"].tolist() == [1]
    assert [order.result()["Y"][0] for order in waiting] == [0, -1, -2, -3]


def test_call_that_lasts_holds_up_no_later_request(client: Client, repository: Path) -> None:
    gated = repository / "gated"
    asking = client.stream("asks_on", {"X": floats(1)})
    wait_until((gated / "at last.begun").exists)
    later = [client.stream("asks_on", {"X": floats(-n)}) for n in range(50)]
    assert [order.result()["Y"][0] for order in later] == [-n for n in range(50)]
    (gated / "at last").touch()
    assert asking.result()["Y"].tolist() == [1]


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.contract("PY-15")
def test_responses_of_a_stream_come_one_by_one(client: Client) -> None:
    x = np.arange(100, dtype=np.float32)
    assert client.infer("sum", {"X": x})["Y"].tolist() == x.tolist()


def test_error_in_a_stream_is_one_response_of_it(client: Client) -> None:
    assert client.infer("sum", {"X": floats(1, -1, 2)})["Y"].tolist() == [1, -100, 2]


def test_coroutine_iterates_over_a_stream(client: Client) -> None:
    x = np.arange(100, dtype=np.float32)
    assert client.infer("async_sum", {"X": x})["Y"].tolist() == x.tolist()


def test_coroutine_awaits_several_streams_of_one_instance_together(client: Client) -> None:
    x = np.arange(100, dtype=np.float32)
    assert client.infer("async_sums", {"X": x})["Y"].tolist() == [*x.tolist(), *x.tolist()]


@pytest.mark.parametrize("count", [1, 4, 7])
def test_many_streams_of_several_requests_are_complete(client: Client, count: int) -> None:
    """Newer releases of Triton fail now and then, with "Invalid argument"."""
    x = np.ones(count, np.float32)
    asked = [client.begin("async_fan", {"X": x}) for _ in range(6)]
    assert [order.result()["Y"].tolist() for order in asked] == [[40 * count]] * 6


@pytest.mark.contract("PY-15", "PY-29")
@pytest.mark.parametrize(
    ("name", "answer"), [("take_three", [0, 1, 2, 0, 0]), ("leave_the_loop", [2])]
)
def test_model_learns_that_its_caller_wants_no_more(
    client: Client, server: Served, repository: Path, name: str, answer: list[float]
) -> None:
    cancelled = repository / "repeat" / "cancelled"
    cancelled.unlink(missing_ok=True)
    assert client.infer(name)["Y"].tolist() == answer
    wait_until(cancelled.exists)
    assert client.infer("sum", {"X": floats(7)})["Y"].tolist() == [7]


@pytest.mark.contract("PY-15", "PY-29")
def test_cancelled_call_ends_with_the_error_of_the_called_model(client: Client) -> None:
    told = client.infer("cancelled").parameters["told"]
    assert json.loads(told) == ["CANCELLED: as you like", "CANCELLED: request was cancelled"]


@pytest.mark.contract("PY-13", "PY-15")
def test_call_that_a_loop_of_the_model_gives_up_holds_up_nothing(
    client: Client, repository: Path
) -> None:
    assert client.infer("own_loop", {"X": floats(1)})["Y"].tolist() == [1, 1]
    (repository / "gated" / "never").touch()


def test_responses_that_come_too_late_leave_no_shared_memory_behind(
    client: Client, server: Served, repository: Path
) -> None:
    (repository / "repeat" / "two").unlink(missing_ok=True)
    client.infer("take_none")
    before = shared_memory(server)
    client.infer("take_none")
    assert shared_memory(server) - before <= 4 << 20


def test_model_calls_the_language_model(client: Client) -> None:
    answer = client.infer("language", {"PROMPT": strings("The file is"), "X": floats(0)})
    parts = answer["TEXT"][0].split(b"|")
    assert len(parts) >= 4
    assert len(b"".join(parts).split()) >= 2


@pytest.mark.contract("PY-15")
def test_language_model_stops_when_no_more_is_wanted(client: Client) -> None:
    answer = client.infer("language_less", {"PROMPT": strings("The file is"), "X": floats(0)})
    assert answer["TEXT"].tolist() == [b"CANCELLED"]


# -- calling oneself ------------------------------------------------------------------------------


@pytest.mark.contract("PY-16")
@pytest.mark.parametrize("name", ["self", "self_async"])
def test_only_instance_that_calls_itself_is_refused(client: Client, name: str) -> None:
    error = client.refusal(name, {"X": floats(1)})
    told = (
        f"Model {name} - Error when running inference: model '{name}' calls itself while its only"
    )
    assert told in error.message
    assert client.infer(name, {"X": floats(0)})["Y"].tolist() == [0]


def test_models_that_would_wait_for_each_other_are_refused(client: Client) -> None:
    assert client.infer("ping", {"X": floats(1)})["Y"].tolist() == [1]
    error = client.refusal("ping", {"X": floats(2)})
    assert "its every instance is waiting for: ping_0_0 -> pong_0_0 -> ping" in error.message
    assert client.infer("pong", {"X": floats(1)})["Y"].tolist() == [1]


def test_version_may_call_another_version(client: Client) -> None:
    answer = client.infer("two_versions", {"X": floats(1)}, model_version="1")
    assert answer["Y"].tolist() == [-1]


def test_model_with_more_instances_may_call_itself(client: Client) -> None:
    assert client.infer("self_three", {"X": floats(2)})["Y"].tolist() == [2]

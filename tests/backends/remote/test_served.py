"""A server with remote entries, and the servers behind it, each in a process of its own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.remote.far_server import ECHO, add_model, entry_text
from harness.repeat_model import REPEAT
from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.slow

TEXT = """\
import numpy as np
from triton_python_backend_utils import InferenceResponse, Tensor, get_input_tensor_by_name

class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(one) for one in requests]

    def _answer(self, request):
        text = get_input_tensor_by_name(request, "text_input").as_numpy().ravel()[0]
        return InferenceResponse([Tensor("text_output", np.array([text.upper()], object))])
"""
TEXT_CONFIG = """\
backend: "python"
input { name: "text_input" data_type: TYPE_STRING dims: 1 }
output { name: "text_output" data_type: TYPE_STRING dims: 1 }
"""
TWICE = """\
platform: "ensemble"
input { name: "text_input" data_type: TYPE_STRING dims: 1 }
output { name: "text_output" data_type: TYPE_STRING dims: 1 }
ensemble_scheduling { step [
  { model_name: "shout" model_version: -1
    input_map { key: "text_input" value: "text_input" }
    output_map { key: "text_output" value: "loud" } },
  { model_name: "shout" model_version: -1
    input_map { key: "text_input" value: "loud" }
    output_map { key: "text_output" value: "text_output" } } ] }
"""
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}]}


def write_far(folder: Path) -> Path:
    add_model(folder, "echo", ECHO)
    add_model(folder, "repeat", REPEAT)
    add_model(folder, "shout", TEXT_CONFIG, TEXT)
    return folder


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def ready(served: Served, model: str) -> bool:
    return httpx.get(f"http://{served.http}/v2/models/{model}/ready").status_code == 200


def post(served: Served, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"http://{served.http}{path}", json=body, timeout=30)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("pair")
    with serving(write_far(folder / "far"), folder / "far.log") as far:
        near = folder / "near"
        for model in ("echo", "repeat", "shout"):
            add_model(near, model, entry_text(f"grpc://{far.grpc}"))
        chat = entry_text(f"http://{far.http}/v1", remote_model="shout", chat="true")
        add_model(near, "chat", chat)
        add_model(near, "twice", TWICE)
        with serving(near, folder / "near.log") as served:
            yield served


def test_answer_passes_through_both(pair: Served) -> None:
    answer = post(pair, "/v2/models/echo/infer", BODY).json()
    assert answer["outputs"][0]["data"] == [1.5, 2.5]
    assert answer["model_name"] == "echo"


def test_stream_passes_through_both(pair: Served) -> None:
    body = {"IN": [1, 2, 3], "DELAY": [0, 0, 0], "WAIT": [0]}
    text = post(pair, "/v2/models/repeat/generate_stream", body).text
    events = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]
    assert [one["OUT"] for one in events] == [1, 2, 3]


def test_error_passes_through_both(pair: Served) -> None:
    body = {"IN": [1, 2, 3], "DELAY": [0], "WAIT": [0]}
    answer = post(pair, "/v2/models/repeat/generate_stream", body)
    assert "expected IN and DELAY shape to match" in answer.text


@pytest.mark.parametrize("model", ["shout", "chat"])
def test_openais_clients_find_text_models(pair: Served, model: str) -> None:
    listed = httpx.get(f"http://{pair.http}/v1/models").json()["data"]
    assert model in {one["id"] for one in listed}
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    answer = post(pair, "/v1/chat/completions", body).json()
    assert "HELLO" in answer["choices"][0]["message"]["content"]


def test_remote_model_is_a_step_of_an_ensemble(pair: Served) -> None:
    answer = post(pair, "/v2/models/twice/generate", {"text_input": "hello"})
    assert answer.json()["text_output"] == "HELLO"


def test_text_of_a_remote_chat_is_a_tensor(pair: Served) -> None:
    body = {"text_input": "hello", "exclude_input_in_output": True}
    assert "HELLO" in post(pair, "/v2/models/chat/generate", body).json()["text_output"]


def test_metrics_name_the_addresses(pair: Served) -> None:
    post(pair, "/v2/models/echo/infer", BODY)
    page = httpx.get(pair.metrics).text
    [line] = [one for one in page.splitlines() if one.startswith("remote_up") and '"echo"' in one]
    assert line.endswith(" 1")


def test_remote_may_come_later_go_and_come_back(tmp_path: Path) -> None:
    far, port = write_far(tmp_path / "far"), free_port()
    tensors = ECHO.partition("\n")[2]
    add_model(tmp_path / "near", "echo", entry_text(f"grpc://127.0.0.1:{port}") + tensors)
    with serving(tmp_path / "near", tmp_path / "near.log") as near:
        assert not ready(near, "echo")
        refused = post(near, "/v2/models/echo/infer", BODY)
        assert (refused.status_code, "connection refused" in refused.text) == (503, True)
        for number in range(2):
            with serving(far, tmp_path / f"far{number}.log", f"--grpc-port={port}"):
                wait_until(lambda: ready(near, "echo"))
                assert post(near, "/v2/models/echo/infer", BODY).status_code == 200
            wait_until(lambda: not ready(near, "echo"))


def test_death_of_one_of_two_loses_no_call(tmp_path: Path) -> None:
    far = write_far(tmp_path / "far")
    with serving(far, tmp_path / "one.log") as one, serving(far, tmp_path / "two.log") as two:
        addresses = f"grpc://{one.grpc},grpc://{two.grpc}"
        add_model(tmp_path / "near", "echo", entry_text(addresses))
        with serving(tmp_path / "near", tmp_path / "near.log") as near:
            statuses: list[int] = []
            stopped = threading.Event()

            def ask() -> None:
                with httpx.Client() as client:
                    while not stopped.is_set():
                        url = f"http://{near.http}/v2/models/echo/infer"
                        statuses.append(client.post(url, json=BODY).status_code)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            wait_until(lambda: len(statuses) > 200)
            one.process.kill()
            before = len(statuses)
            wait_until(lambda: len(statuses) > before + 200)
            stopped.set()
            for thread in threads:
                thread.join()
    assert set(statuses) == {200}

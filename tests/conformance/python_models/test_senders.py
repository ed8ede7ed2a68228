"""Models that are not decoupled and answer through senders; exceptions that leave `execute`."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.python_models.client import Client, floats
from conformance.python_models.repository import DECOUPLED, PythonModel
from harness.serving import Served, wait_until

_HEAD = """
    import asyncio
    import os
    import threading
    import time
    import triton_python_backend_utils as pb_utils

    FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


    def answer(request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())])

"""

# Answers each request as its id says, and returns None.
_THREADS = (
    _HEAD
    + """
    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def execute(self, requests):
            for request in requests:
                how = request.request_id()
                if how == "forget":
                    continue
                sender = request.get_response_sender()
                if how == "before":
                    sender.send(answer(request), flags=FINAL)
                elif how == "die":
                    threading.Thread(target=self.die).start()
                else:
                    threading.Thread(target=self.later, args=(sender, request)).start()
            return None

        def later(self, sender, request):
            how = request.request_id()
            open(os.path.join(self.directory, how + ".begun"), "w").close()
            while not (os.path.exists(os.path.join(self.directory, how)) or sender.is_cancelled()):
                time.sleep(0.005)
            if sender.is_cancelled():
                open(os.path.join(self.directory, "cancelled"), "w").close()
            sender.send(answer(request))
            sender.send(flags=FINAL)

        def die(self):
            time.sleep(0.05)
            os._exit(3)
"""
)

_TASKS = (
    _HEAD
    + """
    class TritonPythonModel:
        async def execute(self, requests):
            self.tasks = [asyncio.create_task(self.later(request, request.get_response_sender()))
                          for request in requests]
            return None

        async def later(self, request, sender):
            await asyncio.sleep(0.02)
            sender.send(answer(request), flags=FINAL)
"""
)

_RAISE = """
        {kind} execute(self, requests):
            for request in requests:
                if request.request_id().startswith("after"):
                    request.get_response_sender().send(answer(request), flags=FINAL)
            raise ValueError("raised for " + requests[0].request_id())
"""


def _raising(kind: str) -> str:
    return f"{_HEAD}\n    class TritonPythonModel:{_RAISE.format(kind=kind)}"


MODELS = {
    "threads": PythonModel(_THREADS),
    "tasks": PythonModel(_TASKS),
    "raises": PythonModel(_raising("def")),
    "raises_async": PythonModel(_raising("async def")),
    "raises_decoupled": PythonModel(_raising("async def"), config=DECOUPLED),
}


@pytest.mark.contract("PY-04", "PY-25")
def test_model_may_answer_before_it_returns_nothing(client: Client) -> None:
    assert client.infer("threads", {"X": floats(1)}, request_id="before")["Y"].tolist() == [1]


@pytest.mark.contract("PY-04", "PY-25")
def test_model_may_answer_from_threads_after_it_has_returned(
    client: Client, repository: Path
) -> None:
    waiting = [client.begin("threads", {"X": floats(n)}, request_id="go") for n in range(3)]
    assert client.infer("threads", {"X": floats(9)}, request_id="before")["Y"].tolist() == [9]
    (repository / "threads" / "go").touch()
    assert [order.result()["Y"].tolist() for order in waiting] == [[0], [1], [2]]


@pytest.mark.contract("PY-04", "PY-25")
def test_coroutine_may_answer_from_tasks_after_it_has_returned(client: Client) -> None:
    waiting = [client.begin("tasks", {"X": floats(n)}) for n in range(3)]
    assert [order.result()["Y"].tolist() for order in waiting] == [[0], [1], [2]]


@pytest.mark.contract("PY-04", "PY-10")
def test_request_that_is_forgotten_fails(client: Client) -> None:
    error = client.refusal("threads", request_id="forget")
    assert (
        "Expected a list in the execute return, found type '<class 'NoneType'>'." in error.message
    )


@pytest.mark.contract("PY-29")
def test_client_that_leaves_is_told_to_the_sender(client: Client, repository: Path) -> None:
    directory = repository / "threads"
    order = client.begin("threads", request_id="never")
    wait_until((directory / "never.begun").exists)
    order.cancel()
    wait_until((directory / "cancelled").exists)
    assert client.infer("threads", {"X": floats(2)}, request_id="before")["Y"].tolist() == [2]


def test_process_that_ends_before_it_answers_fails_the_request(client: Client) -> None:
    assert "threads_0_0" in client.refusal("threads", request_id="die").message
    wait_until(lambda: client.ready("threads"))
    assert client.infer("threads", {"X": floats(3)}, request_id="before")["Y"].tolist() == [3]


@pytest.mark.contract("PY-09")
@pytest.mark.parametrize("name", ["raises", "raises_async", "raises_decoupled"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_exception_that_leaves_execute_is_in_the_log_once(
    client: Client, server: Served, repository: Path, name: str, when: str
) -> None:
    """Also when every client has its answer already."""
    identity = f"{when} {name}!"  # no other one begins with it
    order = client.stream(name, {"X": floats(1)}, request_id=identity)
    told = f"Failed to process the request(s) for model '{name}_0_0', message: ValueError: raised"
    if when == "after":
        assert order.result()["Y"].tolist() == [1]
    else:
        assert told in order.error().message
    wait_until(lambda: identity in server.log.read_text())
    client.infer("threads", request_id="before")
    log = server.log.read_text()
    (line,) = [line for line in log.splitlines() if f"raised for {identity}" in line]
    assert line.startswith("E")
    assert told in line
    traceback = log.partition(f"raised for {identity}")[2][:400]
    assert f"{repository}/{name}/1/model.py(" in traceback

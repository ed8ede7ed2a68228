"""Models that say themselves whether they are ready: beside their executions, whatever they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel
from harness.serving import Served, wait_until

# Does as the file `mood` says when it is asked, and notes that it was. While there is a file
# `gate`, it waits in `execute`.
_TRITON = """
    import asyncio
    import os
    import threading
    import time
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def path(self, name):
            return os.path.join(self.directory, name)

        %(execute)s execute(self, requests):
            while os.path.exists(self.path("gate")):
                open(self.path("begun"), "w").close()
                %(pause)s
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]

        %(is_ready)s is_ready(self):
            with open(self.path("asked"), "a") as file:
                file.write("x")
            while self.mood() == "wait":
                time.sleep(0.002)
            mood = self.mood()
            if mood == "raise":
                raise RuntimeError("no mood at all")
            return 1 if mood == "one" else mood == "good"

        def mood(self):
            if not os.path.exists(self.path("mood")):
                return "good"
            with open(self.path("mood")) as file:
                return file.read()
"""
_BLOCKING = {"execute": "def", "pause": "time.sleep(0.002)"}
_AWAITING = {"execute": "async def", "pause": "await asyncio.sleep(0.002)"}

_ASYNCIO = """
    import asyncio
    from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


    class Panic(BaseException):
        pass


    class Moody(Model):
        config = ModelConfig(
            input=(Input("X", DataType.FP32, dims=(-1,)),),
            output=(Output("Y", DataType.FP32, dims=(-1,)),),
        )

        async def load(self, context):
            self.directory = context.path.parent

        async def infer(self, request):
            while (self.directory / "gate").exists():
                (self.directory / "begun").touch()
                await asyncio.sleep(0.002)
            return Response({"Y": request["X"]})

        async def ready(self):
            with (self.directory / "asked").open("a") as file:
                file.write("x")
            while self.mood() == "wait":
                await asyncio.sleep(0.002)
            mood = self.mood()
            if mood == "raise":
                raise Panic("no mood at all")
            return 1 if mood == "one" else mood == "good"

        def mood(self):
            path = self.directory / "mood"
            return path.read_text() if path.exists() else "good"
"""

_SILENT = """
    import os
    import time
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def initialize(self, args):
            self.directory = args["model_repository"]

        def execute(self, requests):
            while os.path.exists(os.path.join(self.directory, "gate")):
                open(os.path.join(self.directory, "begun"), "w").close()
                time.sleep(0.002)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())])
                    for r in requests]
"""

MODELS = {
    "blocking": PythonModel(_TRITON % {**_BLOCKING, "is_ready": "def"}),
    "blocking_asked_by_coroutine": PythonModel(_TRITON % {**_BLOCKING, "is_ready": "async def"}),
    "awaiting": PythonModel(_TRITON % {**_AWAITING, "is_ready": "def"}),
    "awaiting_asked_by_coroutine": PythonModel(
        (_TRITON % {**_AWAITING, "is_ready": "async def"}).replace(
            "                time.sleep(0.002)", "                await asyncio.sleep(0.002)"
        )
    ),
    "asyncio": PythonModel(_ASYNCIO, config=None),
    "asyncio_plain": PythonModel(
        _ASYNCIO.replace("async def ready", "def ready")
        .replace('== "wait":\n                await asyncio', '== "wait":\n                time')
        .replace("import asyncio", "import asyncio\n    import time"),
        config=None,
    ),
    "silent": PythonModel(_SILENT),
}
_ASKED = [name for name in MODELS if name != "silent"]


class Moody:
    """One of the models, in a good mood."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.name = folder.name
        self._client = client
        self._folder = folder
        for name in ("gate", "begun", "asked", "mood"):
            (folder / name).unlink(missing_ok=True)

    def mood(self, mood: str) -> None:
        new = self._folder / "new"
        new.write_text(mood)
        new.rename(self._folder / "mood")

    def asked(self) -> int:
        file = self._folder / "asked"
        return file.stat().st_size if file.exists() else 0

    def ready(self) -> bool:
        return self._client.ready(self.name)

    def hold(self) -> Any:
        """An execution that goes on until `release`."""
        (self._folder / "gate").touch()
        order = self._client.begin(self.name)
        wait_until((self._folder / "begun").exists)
        return order

    def release(self) -> None:
        (self._folder / "gate").unlink()


@pytest.fixture(params=_ASKED)
def model(client: Client, repository: Path, request: pytest.FixtureRequest) -> Moody:
    return Moody(client, repository / request.param)


@pytest.mark.contract("PY-06", "W-03")
def test_model_says_itself_whether_it_is_ready(client: Client, model: Moody) -> None:
    assert model.ready()
    model.mood("bad")
    assert not model.ready()
    assert not client.call("is_server_ready")
    assert client.infer(model.name)["Y"].tolist() == [1]
    model.mood("good")
    assert model.ready()


@pytest.mark.parametrize(
    ("mood", "why"),
    [("raise", "no mood at all"), ("one", "ready return, found type '<class 'int'>'.")],
)
def test_model_that_fails_to_say_it_is_not_ready(
    model: Moody, server: Served, mood: str, why: str
) -> None:
    before = server.log.stat().st_size
    model.mood(mood)
    assert not model.ready()
    told = server.log.read_bytes()[before:].decode()
    assert why in told
    assert told.startswith("E")
    model.mood("good")
    assert model.ready()


@pytest.mark.contract("PY-06")
def test_model_that_takes_its_time_to_say_it_answers_meanwhile(
    client: Client, model: Moody
) -> None:
    model.mood("wait")
    order = client.begin_ready(model.name)
    wait_until(lambda: model.asked() == 1)
    assert client.infer(model.name)["Y"].tolist() == [1]
    model.mood("good")
    assert order.result() is True


def test_concurrent_readiness_requests_share_the_answer(client: Client, model: Moody) -> None:
    model.mood("wait")
    orders = [client.begin_ready(model.name) for _ in range(3)]
    wait_until(lambda: model.asked() == 1)
    client.call("is_server_live")  # the server has read what was asked before that
    model.mood("bad")
    assert [order.result() for order in orders] == [False] * 3
    assert model.asked() == 1


@pytest.mark.contract("PY-06")
@pytest.mark.parametrize(("mood", "ready"), [("good", True), ("bad", False)])
def test_readiness_does_not_depend_on_an_execution(model: Moody, mood: str, ready: bool) -> None:
    execution = model.hold()
    model.mood(mood)
    assert model.ready() is ready
    model.release()
    assert execution.result()["Y"].tolist() == [1]


def test_model_that_says_nothing_is_ready_while_it_executes(
    client: Client, repository: Path
) -> None:
    model = Moody(client, repository / "silent")
    assert model.ready()
    execution = model.hold()
    assert model.ready()
    model.release()
    assert execution.result()["Y"].tolist() == [1]

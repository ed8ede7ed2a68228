"""`Puppet`: a backend that does what a request tells it, good and bad."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.backend import (
    Backend,
    Controllable,
    InstanceContext,
    Outcome,
    WithMetrics,
    WithReadiness,
)
from penstock.core.errors import ConfigError, NotFoundError
from penstock.core.request import InferenceRequest, InferenceResponse, ParameterValue
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.metrics.histogram import Histogram

logger = logging.getLogger("puppet")


class Puppet(Controllable, WithMetrics, WithReadiness, Backend):
    """The parameter `do` of a request names one of the methods below; `n` is its argument.

    The settings `initialize` and `finalize` say how these two shall go wrong; `mark` is a file
    that `finalize` makes.
    """

    def __init__(self) -> None:
        self.made = 0
        self.closed = 0
        self.executed = 0
        self.well = True
        self.reason = ""
        self.commands = 0
        self.checked = 0
        self.shown: dict[str, float] = {}
        self.observed = Histogram((2.0,))

    async def initialize(self, context: InstanceContext) -> None:
        self.context = context
        self.unload_unhealthy = context.settings.get("unhealthy") == "unload"
        _misbehave(context.settings.get("initialize", ""))

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        self.executed += len(requests)
        if requests[0].parameters.get("do") == "nothing":
            return None  # type: ignore[return-value]
        return [await self._obey(request) for request in requests if _answered(request)]

    async def healthy(self) -> bool:
        self.checked += 1
        return self.well

    def unready(self) -> str:
        return self.reason

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """Tell the arguments, refuse, fail, hang, wait, or return what JSON has not."""
        self.commands += 1
        if action == "refuse":
            raise NotFoundError("no such thing")
        if action == "fail":
            raise KeyError("lost")
        if action == "hang":
            await asyncio.Event().wait()
        if action == "wait":
            await _exists(arguments["until"])
            self.commands += 10
        if action == "tell":
            return "x" * arguments["size"]
        self.reason = str(arguments.get("reason", ""))
        return object() if action == "unspeakable" else {"action": action, **arguments}

    def metrics(self) -> Mapping[str, float]:
        if self.shown.get("broken"):
            raise RuntimeError("no numbers today")
        return self.shown

    def histograms(self) -> Mapping[str, Histogram]:
        if self.shown.get("broken"):
            raise RuntimeError("no histograms today")
        return {"observed": self.observed}

    async def finalize(self) -> None:
        if mark := self.context.settings.get("mark"):
            _leave(mark)
        _misbehave(self.context.settings.get("finalize", ""))

    async def _obey(self, request: InferenceRequest) -> Outcome:
        do: Callable[[InferenceRequest], Any] = getattr(self, str(request.parameters["do"]))
        answer = do(request)
        outcome: Outcome = await answer if asyncio.iscoroutine(answer) else answer
        return outcome

    # -- what may be told -----------------------------------------------------------------------

    def echo(self, request: InferenceRequest) -> Outcome:
        return InferenceResponse(request.inputs, request.parameters)

    def swell(self, request: InferenceRequest) -> Outcome:
        """A small response, one with the `text`, another small one, all at once."""
        stream = ResponseStream()
        for parameters in ({}, request.parameters, {}):
            stream.send(InferenceResponse(parameters=parameters, final=False))
        stream.end()
        return stream

    def complain(self, request: InferenceRequest) -> Outcome:
        return NotFoundError(str(request.parameters["text"]))

    def report(self, _: InferenceRequest) -> Outcome:
        """What has happened here."""
        numbers: dict[str, ParameterValue] = {
            "pid": os.getpid(),
            "made": self.made,
            "closed": self.closed,
            "executed": self.executed,
            "commands": self.commands,
            "checked": self.checked,
            "tasks": len(asyncio.all_tasks()),
            "python": sys.prefix,
            "tmp": tempfile.gettempdir(),
        }
        return InferenceResponse(parameters=numbers)

    def meter(self, request: InferenceRequest) -> Outcome:
        """Whether it was asked to report tokens, which it then does, twice."""
        report = request.scope.report_usage
        if report is not None:
            report(7, 3, 1)
            report(7, 3, 20)
        return InferenceResponse(parameters={"asked": report is not None})

    def meter_until_left(self, request: InferenceRequest) -> Outcome:
        """Report a token, and eight more when the reader leaves."""
        stream, report = ResponseStream(), request.scope.report_usage
        assert report is not None
        stream.connect(partial(report, 7, 3, 9))
        report(7, 3, 1)
        return stream

    def stream(self, request: InferenceRequest) -> Outcome:
        """`n` numbers, by a generator."""
        return self._numbers(int(request.parameters["n"]), 0.0)

    def drip(self, request: InferenceRequest) -> Outcome:
        """Numbers without end, one every few milliseconds."""
        return self._numbers(1 << 30, 0.005)

    def push(self, request: InferenceRequest) -> Outcome:
        """`n` numbers, all at once, as an engine does that does not wait for its readers."""
        stream = ResponseStream()
        stream.connect(self._closed)
        for number in range(int(request.parameters["n"])):
            stream.send(_number(number))
        stream.end()
        return stream

    def flow(self, request: InferenceRequest) -> Outcome:
        """Numbers without end, pushed whenever there is room."""
        stream = ResponseStream()

        def fill(_: int = 0) -> None:
            while stream.backlog < 4 and not stream.ended:
                self.made += 1
                stream.send(_number(self.made))

        stream.connect(self._closed, fill)
        fill()
        return stream

    async def flow_late(self, request: InferenceRequest) -> Outcome:
        """The same, but only once there is the file `until`."""
        await _exists(request.parameters["until"])
        return self.flow(request)

    def record(self, request: InferenceRequest) -> Outcome:
        """`n` numbers, by a generator that records at its end how many, if it is traced."""
        return self._recorded(request)

    def flood(self, _: InferenceRequest) -> Outcome:
        """Responses of a MiB without end."""
        return self._floods()

    def can_import(self, request: InferenceRequest) -> Outcome:
        found = importlib.util.find_spec(str(request.parameters["name"])) is not None
        return InferenceResponse(parameters={"found": found})

    async def hang(self, _: InferenceRequest) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    async def stay(self, request: InferenceRequest) -> Outcome:
        """Leave the request's id in the file `mark`, and hang."""
        self.note(request)
        return await self.hang(request)

    def compute(self, request: InferenceRequest) -> Outcome:
        """Compute in Python for so many `seconds`, on the event loop."""
        end = time.monotonic() + float(request.parameters["seconds"])
        while time.monotonic() < end:
            pass
        return InferenceResponse()

    def hold_lock(self, request: InferenceRequest) -> Outcome:
        """Call code in C that keeps Python's lock until somebody opens the pipe `until`."""
        ctypes.PyDLL(None).open(str(request.parameters["until"]).encode(), os.O_RDONLY)
        return InferenceResponse()

    async def wait(self, request: InferenceRequest) -> Outcome:
        """Until there is the file `until`."""
        await _exists(request.parameters["until"])
        return InferenceResponse()

    async def cancelled(self, _: InferenceRequest) -> Outcome:
        raise asyncio.CancelledError

    async def failing_stream(self, request: InferenceRequest) -> Outcome:
        return self._broken()

    def boom(self, _: InferenceRequest) -> Outcome:
        raise ValueError("boom")

    def missing(self, _: InferenceRequest) -> Outcome:
        return NotFoundError("no such thing")

    def note(self, request: InferenceRequest) -> Outcome:
        """Leave the request's id in the file `mark`, and end the process if it is `die`."""
        with open(self.context.settings["mark"], "a") as file:
            file.write(f"{request.id}\n")
        if request.id == "die":
            os._exit(9)
        return InferenceResponse()

    def exit(self, request: InferenceRequest) -> Outcome:
        os._exit(int(request.parameters["n"]))

    def say(self, request: InferenceRequest) -> Outcome:
        """Write bytes to the link behind its back."""
        os.write(int(sys.argv[2]), bytes.fromhex(str(request.parameters["hex"])))
        return InferenceResponse()

    def output(self, request: InferenceRequest) -> Outcome:
        """Print the `text`."""
        print(request.parameters["text"])
        return InferenceResponse()

    def variables(self, _: InferenceRequest) -> Outcome:
        return InferenceResponse(parameters={"names": ",".join(os.environ)})

    def sicken(self, _: InferenceRequest) -> Outcome:
        self.well = False
        return InferenceResponse()

    def show(self, request: InferenceRequest) -> Outcome:
        """Let a number be seen as a metric, by the type that `numpy` has for it."""
        number: Any = np.float32(request.parameters["n"])
        self.shown = {"shown": number}
        self.observed.observe(float(number))
        return InferenceResponse()

    def break_metrics(self, _: InferenceRequest) -> Outcome:
        self.shown = {"broken": 1.0}
        return InferenceResponse()

    def log(self, _: InferenceRequest) -> Outcome:
        logger.warning("a word from %s", "inside", extra={"request_id": "r-1"})
        return InferenceResponse()

    def log_failure(self, _: InferenceRequest) -> Outcome:
        try:
            raise KeyError("lost")
        except KeyError:
            logger.exception("something is missing")
        return InferenceResponse()

    def numpy_values(self, _: InferenceRequest) -> Outcome:
        """A response with numpy's scalars where plain values belong."""
        shape: Any = (np.int64(2),)
        parameters: Any = {"f": np.float32(0.5), "i": np.int64(7), "b": np.bool_(True)}
        return InferenceResponse(
            {"OUT": Tensor(DataType.INT8, shape, b"\1\2")}, parameters=parameters
        )

    def wide_view(self, _: InferenceRequest) -> Outcome:
        """A buffer whose items are larger than a byte."""
        view = np.array([1.5, 2.5], np.float32).data
        return InferenceResponse({"OUT": Tensor(DataType.FP32, (2,), view)})

    def unspeakable(self, _: InferenceRequest) -> Outcome:
        """A response that cannot travel."""
        parameters: Any = {"x": object()}
        return InferenceResponse(parameters=parameters)

    def grandchild(self, _: InferenceRequest) -> Outcome:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return InferenceResponse(parameters={"pid": child.pid})

    def daemon(self, _: InferenceRequest) -> Outcome:
        """A program in a session of its own."""
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return InferenceResponse(parameters={"pid": child.pid})

    def shared_memory(self, _: InferenceRequest) -> Outcome:
        """Shared memory as models make it for processes of their own; its tracker removes it.

        Until that is more than a fork, it is killed with the others.
        """
        self.memory = SharedMemory(create=True, size=4096)
        tracker: Any = resource_tracker._resource_tracker
        while b"resource_tracker" not in Path(f"/proc/{tracker._pid}/cmdline").read_bytes():
            time.sleep(0.002)
        return InferenceResponse(parameters={"name": self.memory.name})

    def on_thread(self, _: InferenceRequest) -> Any:
        return self._on_thread()

    # -- how ------------------------------------------------------------------------------------

    async def _on_thread(self) -> Outcome:
        names = [await self.context.run(_thread_name) for _ in range(2)]
        return InferenceResponse(parameters={"same": names[0] == names[1], "name": names[0]})

    async def _numbers(self, count: int, pause: float) -> AsyncIterator[InferenceResponse]:
        try:
            for number in range(count):
                self.made += 1
                yield _number(number)
                if pause:
                    await asyncio.sleep(pause)
        finally:
            self._closed()

    async def _recorded(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        timeline, made = request.scope.timeline, 0
        try:
            while made < int(request.parameters["n"]):
                made += 1
                yield _number(made)
                await asyncio.sleep(0.001)
        finally:
            await asyncio.sleep(0)
            if timeline is not None:
                timeline.mark("DONE", 7)
                timeline.facts["made"] = made

    async def _floods(self) -> AsyncIterator[InferenceResponse]:
        while True:
            yield InferenceResponse({"OUT": Tensor.from_numpy(np.ones(1 << 20, np.uint8))})

    async def _broken(self) -> AsyncIterator[InferenceResponse]:
        yield _number(0)
        raise ValueError("boom in the middle")

    def _closed(self) -> None:
        self.closed += 1


class Unloadable:
    """No backend at all."""

    def __init__(self) -> None:
        raise ImportError("no module named 'engine'")


def _answered(request: InferenceRequest) -> bool:
    return request.parameters.get("do") != "forget"


def _number(value: int) -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_numpy(np.array([value], np.int32))})


async def _exists(path: ParameterValue) -> None:
    """Wait for a file; nothing announces it."""
    while not Path(str(path)).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.002)


def _leave(mark: str) -> None:
    Path(mark).touch()


def _thread_name() -> str:
    return threading.current_thread().name


def _misbehave(how: str) -> None:
    if how == "raise":
        raise ValueError("cannot do it")
    if how == "refuse":
        raise ConfigError("parameter 'x' is wrong")
    if how in ("exit", "leave"):
        os._exit(3 if how == "exit" else 0)
    if how == "hang":
        threading.Event().wait()

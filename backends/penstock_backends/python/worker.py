"""What the server can ask of the model process, done one thing after the other."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.config import config_from_json
from penstock.core.errors import InferenceError, InternalError
from penstock.core.placement import Placement
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.tensor import Buffer
from penstock.hosting import event_loop
from penstock.hosting.frames import encode
from penstock.hosting.messages import Kind
from penstock.model import Model
from penstock_backends.python.api import install_module
from penstock_backends.python.config import ModelConfig
from penstock_backends.python.memory_limit import limit_memory
from penstock_backends.python.model import PythonModel, load_class
from penstock_backends.python.native_config import completed_config
from penstock_backends.python.native_worker import NativeWorker
from penstock_backends.python.reentry import Reentry
from penstock_backends.python.replies import PendingReply, Terms, printable
from penstock_backends.python.request import InferenceRequest
from penstock_backends.python.traceback_text import describe, failure
from penstock_backends.python.values import InferenceResponse

if TYPE_CHECKING:
    from penstock_backends.python.stub import Stub

Batch = list[tuple[PendingReply, InferenceRequest]]

_RAISED = (Exception, SystemExit, asyncio.CancelledError)
"""What a model may raise when it is asked; the last two are no reason to end the process."""


_QUICK = 100_000
"""Nanoseconds of an execution below which its answers wait for those of the next."""


@dataclass(slots=True)
class _Answers:
    """Responses of one batch: those that the model gave, and packed, their headers and tensors.

    `replies` are those that are owed; `problem` is why some of them cannot be answered.
    """

    replies: Sequence[PendingReply]
    collected: deque[tuple[PendingReply, CoreResponse]] = field(default_factory=deque)
    problem: str | None = None
    headers: list[tuple[int, Any]] = field(default_factory=list)
    payload: list[Buffer] = field(default_factory=list)


class Worker:
    """Loads the model, runs its batches, and ends it."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._model: PythonModel
        self._name = ""
        self._terms = Terms()
        self._running = 0
        self._handlers: dict[int, Callable[[Any, memoryview], bool]] = {
            Kind.INITIALIZE: self._initialize,
            Kind.EXECUTE: self._execute,
            Kind.PROBE: self._probe,
            Kind.FINALIZE: self._finalize,
            Kind.REGION: lambda offer, _: self._borrow(Kind.REGION, offer),
            Kind.REGION_GONE: lambda number, _: self._borrow(Kind.REGION_GONE, number),
        }

    def handle(self, kind: int, header: Any, payload: memoryview) -> bool:
        """Do one thing; false when it was the last."""
        return self._handlers[kind](header, payload)

    # -- begin and end ------------------------------------------------------------------------

    def _initialize(self, header: Mapping[str, Any], _: memoryview) -> bool:
        install_module()
        try:
            Placement(**header["placement"]).apply()
            limit_memory(config_from_json(header["config"]))
            cls = self._load_class(header)
            native = NativeWorker(self._stub, header, cls) if issubclass(cls, Model) else None
            if native is None:
                self._load(header, cls)
        except Exception as error:  # a model may raise anything
            code, text = failure(error)
            self._stub.send(Kind.FAILED, (code, printable(text)))
            return True
        if native is not None:
            event_loop.run(native.serve())
            return False
        self._stub.send(Kind.READY, None)
        if self._model.asynchronous:
            event_loop.run(self._serve_coroutines())
            return False
        return True

    def _load_class(self, header: Mapping[str, Any]) -> type[Any]:
        path = model_file(header)
        self._name = header["name"]
        self._stub.model_directory = str(path.parent)
        return load_class(path)

    def _load(self, header: Mapping[str, Any], cls: type[Any]) -> None:
        self._terms = Terms.of(header)
        version, running = header["version"], self._is_running
        self._stub.reentry = Reentry(header["config"], version, self._name, running)
        self._model = PythonModel(cls)
        self._model.initialize(_arguments(header))
        self._stub.executing = True

    def _finalize(self, _: Any, __: memoryview) -> bool:
        self._stub.executing = False
        try:
            self._model.finalize()
        except Exception as error:  # the model is gone all the same
            self._stub.log(40, f"finalize failed: {describe(error)}", "model.py", 0)
        return False

    def _probe(self, _: Any, __: memoryview) -> bool:
        ready = self._readiness()
        if not isinstance(ready, bool):
            ready = asyncio.run(self._awaited(ready))
        self._stub.send(Kind.HEALTH, ready)
        return True

    def _readiness(self) -> bool | Coroutine[Any, Any, Any]:
        """What the model says of itself, if anything; a coroutine when it needs a loop for it."""
        if not self._model.tells_readiness:
            return True
        try:
            ready = self._model.is_ready()
        except _RAISED as error:
            return self._not_ready(error)
        return ready if asyncio.iscoroutine(ready) else bool(ready)

    async def _awaited(self, ready: Coroutine[Any, Any, Any]) -> bool:
        try:
            return bool(await ready)
        except _RAISED as error:
            return self._not_ready(error)

    def _not_ready(self, error: BaseException) -> bool:
        """A model that cannot even say whether it is ready is not."""
        self._stub.log(40, f"is_ready failed: {describe(error)}", "model.py", 0)
        return False

    def _borrow(self, kind: Kind, header: Any) -> bool:
        self._stub.borrow(kind, header)
        return True

    # -- batches ------------------------------------------------------------------------------

    def _execute(self, header: Any, payload: memoryview) -> bool:
        number, packed = header
        self._stub.begin(number)
        begun = time.monotonic_ns()
        batch = self._accept(packed, payload)
        started = time.monotonic_ns()
        answers = _Answers([reply for reply, _ in batch])
        returned: Any = None
        self._running += 1
        try:
            if batch:
                returned = self._model.execute([request for _, request in batch])
                self._collect(batch, returned, answers)
        except _RAISED as error:
            answers.problem = _text(error)
        self._running -= 1
        again = _rescheduled(batch)
        returned = None
        del batch  # so that inputs which are outputs too are seen by nobody
        failures = self._answer(answers)
        finished = time.monotonic_ns()
        header = (number, begun, started, finished, answers.headers)
        parts = again + encode(Kind.EXECUTED, header, answers.payload) + failures
        self._stub.send_parts(parts, hurry=finished - begun > _QUICK)
        return True

    def _is_running(self) -> bool:
        """Whether the server waits for an execution to return before it gives us another."""
        return self._running > 0

    def _accept(self, packed: Sequence[Any], payload: memoryview) -> Batch:
        owed = self._stub.accept(packed, payload, self._terms)
        return [(reply, InferenceRequest.received(core, reply)) for reply, core in owed]

    def _collect(self, batch: Batch, returned: Any, answers: _Answers) -> None:
        """Take the responses that `execute` returned, by position; contract PY-04 and PY-10."""
        if self._terms.decoupled:
            if returned is not None:
                raise InternalError(
                    f"Python model '{self._name}' is using the decoupled mode and the execute"
                    " function must return None."
                )
            return
        self._check(batch, returned)
        for (reply, request), response in zip(batch, returned, strict=True):
            if response is None or reply.closed:
                continue  # it is, or will be, answered through its sender
            core = reply.core(response, final=True)
            if not reply.places:
                core = self._stub.find_parts(core, request.core)
            answers.collected.append((reply, core))

    def _answer(self, answers: _Answers) -> list[Buffer]:
        """Pack the responses; word of those that fail, for what has no final answer yet."""
        collected = answers.collected
        try:
            while collected:
                reply, core = collected[0]
                packed = self._stub.pack_response(core, answers.payload, reply.places)
                collected.popleft()
                answers.headers.append((reply.number, packed))
                reply.closed = True
                self._stub.forget(reply.number)
        except Exception as error:  # a response may be unfit to travel in any way
            answers.problem = answers.problem or _text(error)
        for _, core in collected:
            self._stub.keep_parts(core)
        return [] if answers.problem is None else self._failures(answers.replies, answers.problem)

    def _check(self, batch: Batch, answers: Any) -> None:
        if not isinstance(answers, list):
            raise InternalError(
                f"Expected a list in the execute return, found type '{type(answers)}'."
            )
        if len(answers) != len(batch):
            raise InternalError(
                "Number of InferenceResponse objects do not match the number of InferenceRequest"
                f" objects. InferenceRequest(s) size is:{len(batch)}, and InferenceResponse(s)"
                f" size is:{len(answers)}\n"
            )
        for (_, request), response in zip(batch, answers, strict=True):
            if response is not None and request.rescheduled:
                raise InternalError(
                    "Expected a None object in the execute function return list for reschduled"
                    f" request, found type '{type(response)}'."
                )
            if response is not None and not isinstance(response, InferenceResponse):
                raise InternalError(
                    "Expected an 'InferenceResponse' object in the execute function return list,"
                    f" found type '{type(response)}'."
                )

    def _failures(self, replies: Sequence[PendingReply], text: str) -> list[Buffer]:
        """The same error for every request that has no final answer yet (contract PY-09)."""
        message = (
            f"Failed to process the request(s) for model '{self._name}', message: {printable(text)}"
        )
        parts: list[Buffer] = []
        for reply in replies:
            if not reply.closed:
                reply.closed = True
                self._stub.forget(reply.number)
                parts += encode(Kind.ERROR, (reply.number, InternalError.code, message))
        return parts

    # -- coroutines ---------------------------------------------------------------------------

    async def _serve_coroutines(self) -> None:
        """As the loop of `Stub.serve`, while executions overlap."""
        loop = asyncio.get_running_loop()
        work = asyncio.Event()
        self._stub.watch(loop, work.set)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await work.wait()
                work.clear()
                while (message := self._stub.take_work()) is not None:
                    kind, header, payload = message
                    if kind == Kind.EXECUTE:
                        tasks.create_task(self._execute_coroutine(header, payload))
                    elif kind == Kind.PROBE:
                        tasks.create_task(self._probe_coroutine())
                    elif not self.handle(kind, header, payload):
                        return

    async def _probe_coroutine(self) -> None:
        ready = self._readiness()
        if not isinstance(ready, bool):
            ready = await self._awaited(ready)
        self._stub.send(Kind.HEALTH, ready)

    async def _execute_coroutine(self, header: Any, payload: memoryview) -> None:
        number, packed = header
        self._stub.begin(number)
        begun = time.monotonic_ns()
        batch = self._accept(packed, payload)
        started = time.monotonic_ns()
        # The next batch may come while this one runs, unless it may hold the same requests.
        ahead = self._terms.decoupled and not self._terms.iterative
        if ahead:
            self._stub.send(Kind.DONE, (number, begun, started, time.monotonic_ns()))
        self._running += not ahead
        answers = _Answers([reply for reply, _ in batch])
        returned: Any = None
        try:
            if batch:
                returned = await self._model.execute([request for _, request in batch])
                self._collect(batch, returned, answers)
        except _RAISED as error:
            answers.problem = _text(error)
        self._running -= not ahead
        again = _rescheduled(batch)
        returned = None
        del batch  # so that inputs which are outputs too are seen by nobody
        parts = self._answer(answers)
        if not ahead:
            header = (number, begun, started, time.monotonic_ns(), answers.headers)
            parts = again + encode(Kind.EXECUTED, header, answers.payload) + parts
        self._stub.send_parts(parts)
        self._stub.tell_freed()


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, InferenceError) else describe(error)


def _rescheduled(batch: Batch) -> list[Buffer]:
    """Word of the requests that shall come again; before that of the end of their execution."""
    parts: list[Buffer] = []
    for reply, request in batch:
        if request.rescheduled and not reply.closed and not reply.cancelled:
            parts += encode(Kind.RESCHEDULE, reply.number)
    return parts


def complete_config(header: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with what the model's `auto_complete_config` says (contract AC-09)."""
    config: dict[str, Any] = header["config"]
    cls = load_class(model_file(header))
    if issubclass(cls, Model):
        return completed_config(cls, config)
    if not hasattr(cls, "auto_complete_config"):
        return config
    completed = cls.auto_complete_config(ModelConfig(json.dumps(config)))
    if not isinstance(completed, ModelConfig):
        raise InternalError(
            f"auto_complete_config function in model '{config['name']}' must return a valid"
            " pb.ModelConfig object."
        )
    result: dict[str, Any] = completed.as_dict()
    return result


def model_file(header: Mapping[str, Any]) -> Path:
    """Where the model's code is."""
    filename = header["config"].get("default_model_filename") or "model.py"
    return Path(header["version_path"]) / filename


def _arguments(header: Mapping[str, Any]) -> dict[str, str]:
    """What `initialize` is given: strings all of them (contract PY-03)."""
    version_path = Path(header["version_path"])
    return {
        "model_config": json.dumps(header["config"]),
        "model_instance_kind": header["kind"].removeprefix("KIND_"),
        "model_instance_name": header["name"],
        "model_instance_device_id": str(header["device_id"]),
        "model_repository": str(version_path.parent),
        "model_version": str(header["version"]),
        "model_name": header["config"]["name"],
    }

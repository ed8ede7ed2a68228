"""Worker of a `TritonPythonModel`: loads it, executes its batches, finalizes it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.core.placement import Placement
from penstock.hosting.link.introduction import Introduction
from penstock.hosting.link.link import Pulse
from penstock.hosting.link.messages import Execute, Kind
from penstock.model import Model
from penstock.system import event_loop
from penstock.system.allocator import free_caches
from penstock_backends.python.model_code import locate_code
from penstock_backends.python.pb_utils.modules import install_modules
from penstock_backends.python.pb_utils.request import InferenceRequest
from penstock_backends.python.process.asyncio_worker import AsyncioWorker
from penstock_backends.python.process.author_code import PythonModel, load_class
from penstock_backends.python.process.current_trace import Serving, take_spans
from penstock_backends.python.process.execution import Execution
from penstock_backends.python.process.linked_runtime import LinkedRuntime
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.readiness import Readiness
from penstock_backends.python.process.reentry import Reentry
from penstock_backends.python.process.replies import ReplyPolicy
from penstock_backends.python.process.reply_table import ReplyTable
from penstock_backends.python.process.traceback_text import describe, failure, printable


class Worker:
    """Handles the work that the server sends, one message after the other."""

    def __init__(self, link: ModelLink, runtime: LinkedRuntime) -> None:
        self._link = link
        self._runtime = runtime
        self._replies = ReplyTable(link)
        self._model: PythonModel
        self._readiness: Readiness
        self._pulse: Pulse
        self._probe_readiness: Callable[[], object] = lambda: self._pulse.answer(ready=True)
        self._name = ""
        self._policy = ReplyPolicy()
        self._running = 0
        self._requests: Sequence[InferenceRequest] = ()
        self._handlers: dict[int, Callable[[Any, memoryview], bool]] = {
            Kind.INITIALIZE: self._initialize,
            Kind.EXECUTE: self._execute,
            Kind.FINALIZE: self._finalize,
            Kind.REGION_GONE: self._unmap_region,
            Kind.SHRINK: self._shrink,
        }

    def serve(self) -> None:
        """Handle messages until the server finalizes the model; raises `LinkClosedError`."""
        while self._handle(*self._link.next_work()):
            pass

    def _handle(self, kind: int, header: Any, payload: memoryview) -> bool:
        """Handle one message; returns false when it was the last."""
        return self._handlers[kind](header, payload)

    # -- load, finalize -----------------------------------------------------------------------

    def _initialize(self, introduction: Introduction, _: memoryview) -> bool:
        self._pulse = Pulse(
            introduction["pulse"], lambda: self._probe_readiness(), self._link.map_region
        )
        install_modules()
        try:
            Placement(**introduction["placement"]).apply()
            cls = self._load_class(introduction)
            worker = self._asyncio_worker(introduction, cls) if issubclass(cls, Model) else None
            if worker is None:
                self._load(introduction, cls)
        except BaseException as error:  # a model may raise anything: exits, panics of Rust
            code, text = failure(error)
            self._link.exit_if_fork()
            self._link.send(Kind.FAILED, (code, printable(text)))
            return True
        self._link.exit_if_fork()
        if worker is not None:
            self._probe_readiness = worker.probe_readiness
            event_loop.run(worker.serve())
            return False
        self._probe_readiness = self._readiness.probe
        self._link.send(Kind.READY, self._model.has_readiness)
        if self._model.asynchronous:
            event_loop.run(self._serve_coroutines())
            return False
        return True

    def _load_class(self, introduction: Introduction) -> type[Any]:
        code = locate_code(
            introduction["config"], introduction["version_path"], introduction["settings"]
        )
        self._name = introduction["name"]
        directory = introduction["version_path"] if code.shared else code.path.parent
        self._runtime.model_directory = str(directory)
        return load_class(code)

    def _asyncio_worker(self, introduction: Introduction, cls: type[Model]) -> AsyncioWorker:
        return AsyncioWorker(
            self._link, self._runtime, self._replies, introduction, cls, self._answer_readiness
        )

    def _load(self, introduction: Introduction, cls: type[Any]) -> None:
        self._policy = ReplyPolicy.from_config(introduction["config"], introduction["window"])
        version, running = introduction["version"], self._is_running
        self._runtime.reentry = Reentry(introduction["config"], version, self._name, running)
        self._model = PythonModel(cls)
        self._readiness = Readiness(self._model, self._link, self._runtime, self._answer_readiness)
        self._model.initialize(_arguments(introduction))
        if introduction["spans"]:
            take_spans(self._replies.find_timeline, self._replies.send_recorded)
        self._runtime.executing = True

    def _shrink(self, _: Any, __: memoryview) -> bool:
        free_caches()
        return True

    def _finalize(self, _: Any, __: memoryview) -> bool:
        self._runtime.executing = False
        try:
            self._model.finalize()
        except BaseException as error:  # the model is gone all the same
            self._runtime.log(logging.ERROR, f"finalize failed: {describe(error)}", "model.py", 0)
        self._link.exit_if_fork()
        return False

    def _answer_readiness(self, ready: bool) -> None:
        self._pulse.answer(ready=ready)

    def _unmap_region(self, number: Any, _: memoryview) -> bool:
        self._link.unmap_region(number)
        return True

    # -- batches ------------------------------------------------------------------------------

    def _execute(self, header: Execute, payload: memoryview) -> bool:
        execution = Execution(self._link, self._replies, self._name, self._policy, header, payload)
        self._requests = execution.requests
        self._running += 1
        try:
            if execution.requests:
                execution.collect(self._run_model(execution))
        except BaseException as error:  # a model may raise anything: exits, panics of Rust
            execution.fail(error)
        self._link.exit_if_fork()
        self._running -= 1
        self._requests = ()
        parts = execution.finish()
        self._link.send_parts(parts, urgent=not execution.quick)
        return True

    def _run_model(self, execution: Execution) -> Any:
        if not execution.timelines:
            return self._model.execute(execution.requests)
        with Serving(execution.timelines, len(execution.requests)):
            return self._model.execute(execution.requests)

    def _is_running(self) -> bool:
        """Whether an execution must return before anything is answered or executed."""
        return self._running > 0 and not any(request.has_sender for request in self._requests)

    # -- coroutines ---------------------------------------------------------------------------

    async def _serve_coroutines(self) -> None:
        """As `serve`, on an event loop: executions overlap."""
        loop = asyncio.get_running_loop()
        work = asyncio.Event()
        self._link.read_on(loop, work.set)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await work.wait()
                work.clear()
                while (message := self._link.poll_work()) is not None:
                    kind, header, payload = message
                    if kind == Kind.EXECUTE:
                        tasks.create_task(self._execute_coroutine(header, payload))
                    elif kind == Kind.PROBE:
                        tasks.create_task(self._readiness.probe_on_loop())
                    elif not self._handle(kind, header, payload):
                        return

    async def _execute_coroutine(self, header: Execute, payload: memoryview) -> None:
        execution = Execution(self._link, self._replies, self._name, self._policy, header, payload)
        # The next batch may overlap with this one, unless it may hold the same requests.
        ahead = self._policy.decoupled and not self._policy.iterative
        if ahead:
            self._link.send(Kind.DONE, execution.done_header())
        self._requests = () if ahead else execution.requests
        self._running += not ahead
        try:
            if execution.requests:
                execution.collect(await self._run_coroutine(execution))
        except GeneratorExit:
            raise
        except BaseException as error:  # a model may raise anything
            execution.fail(error)
        self._link.exit_if_fork()
        self._running -= not ahead
        self._requests = ()
        self._link.send_parts(execution.failures() if ahead else execution.finish())
        self._link.report_released()

    async def _run_coroutine(self, execution: Execution) -> Any:
        if not execution.timelines:
            return await self._model.execute(execution.requests)
        with Serving(execution.timelines, len(execution.requests)):
            return await self._model.execute(execution.requests)


def _arguments(introduction: Introduction) -> dict[str, str]:
    """The arguments of the model's `initialize`: all of them strings (contract PY-03)."""
    version_path = Path(introduction["version_path"])
    return {
        "model_config": json.dumps(introduction["config"]),
        "model_instance_kind": introduction["kind"].removeprefix("KIND_"),
        "model_instance_name": introduction["name"],
        "model_instance_device_id": str(introduction["device_id"]),
        "model_repository": str(version_path.parent),
        "model_version": str(introduction["version"]),
        "model_name": introduction["model"],
    }

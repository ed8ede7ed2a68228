"""Worker of a `penstock.model.Model`: loads it, executes batches on an event loop, unloads it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.core.config import config_from_json
from penstock.hosting.link.introduction import Introduction
from penstock.hosting.link.messages import Execute, Kind
from penstock.model import Context, Model
from penstock.system.allocator import free_caches
from penstock_backends.python.pb_utils.logger import ServerHandler
from penstock_backends.python.process.asyncio_model import AsyncioModel, call_model
from penstock_backends.python.process.current_trace import take_spans
from penstock_backends.python.process.linked_runtime import LinkedRuntime
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.replies import ReplyPolicy
from penstock_backends.python.process.reply_table import ReplyTable
from penstock_backends.python.process.traceback_text import describe, failure

logger = logging.getLogger(__name__)


class AsyncioWorker:
    """Handles the work that the server sends, each message in a task of its own."""

    def __init__(
        self,
        link: ModelLink,
        runtime: LinkedRuntime,
        replies: ReplyTable,
        introduction: Introduction,
        cls: type[Model],
        answer_readiness: Callable[[bool], None],
    ) -> None:
        self._link = link
        self._answer_readiness = answer_readiness
        self._runtime = runtime
        self._replies = replies
        self._spans = introduction["spans"]
        config = config_from_json(introduction["config"])
        self._model = AsyncioModel(cls, config)
        self._policy = ReplyPolicy.from_config(introduction["config"], introduction["window"])
        self._context = Context(
            name=introduction["name"],
            path=Path(introduction["version_path"]),
            config=config,
            version=introduction["version"],
            kind=introduction["kind"],
            device_id=introduction["device_id"],
            calls=call_model,
        )

    async def serve(self) -> None:
        """Load the model, and serve until the server finalizes it."""
        logging.basicConfig(level=logging.INFO, handlers=[ServerHandler()])
        try:
            await self._model.load(self._context)
        except BaseException as error:  # a model may raise anything
            self._link.send(Kind.FAILED, failure(error))
            return
        if self._spans:
            take_spans(self._replies.find_timeline, self._replies.send_recorded)
        self._runtime.executing = True
        self._link.send(Kind.READY, self._model.has_readiness)
        try:
            await self._serve_batches()
        finally:
            await self._unload()

    def probe_readiness(self) -> None:
        """Queue a readiness probe for the model's event loop; from any thread."""
        self._link.add_work(Kind.PROBE)

    async def _serve_batches(self) -> None:
        work = asyncio.Event()
        self._link.read_on(asyncio.get_running_loop(), work.set)
        async with asyncio.TaskGroup() as tasks:
            running: set[asyncio.Task[None]] = set()
            while True:
                await work.wait()
                work.clear()
                while (message := self._link.poll_work()) is not None:
                    kind, header, payload = message
                    if kind == Kind.FINALIZE:
                        for task in running:
                            task.cancel()
                        return
                    if kind == Kind.REGION_GONE:
                        self._link.unmap_region(header)
                    elif kind == Kind.SHRINK:
                        free_caches()
                    else:
                        handler = self._execute if kind == Kind.EXECUTE else self._probe
                        task = tasks.create_task(handler(header, payload))
                        running.add(task)
                        task.add_done_callback(running.discard)

    async def _execute(self, header: Execute, payload: memoryview) -> None:
        """Execute a batch; the next one is requested at once, since requests overlap."""
        number, packed = header
        self._link.begin_batch(number)
        begun = time.monotonic_ns()
        batch = self._replies.accept(packed, payload, self._policy)
        started = time.monotonic_ns()
        self._link.send(Kind.DONE, (number, begun, started, started, 0))
        await self._model.execute(batch)
        del batch
        self._link.report_released()

    async def _probe(self, _: Any, __: memoryview) -> None:
        try:
            ready = await self._model.ready()
            if not isinstance(ready, bool):
                raise TypeError(f"Expected a bool in the ready return, found type '{type(ready)}'.")
        except GeneratorExit:
            raise
        except BaseException as error:  # a model whose `ready` fails is not ready
            logger.error("the model's 'ready' failed: %s", describe(error))
            ready = False
        self._answer_readiness(ready)

    async def _unload(self) -> None:
        try:
            await self._model.unload()
        except GeneratorExit:
            raise
        except BaseException as error:  # the model is gone all the same
            logger.error("the model's 'unload' failed: %s", describe(error))

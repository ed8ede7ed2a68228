"""What the server can ask of a process with a `penstock.model.Model`, on an event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.config import config_from_json
from penstock.hosting.link.messages import Kind
from penstock.model import Context, Model
from penstock_backends.python.pb_utils.logger import ServerHandler
from penstock_backends.python.process.asyncio_model import NativeModel, call_model
from penstock_backends.python.process.replies import Terms
from penstock_backends.python.process.traceback_text import describe, failure

if TYPE_CHECKING:
    from penstock_backends.python.process.model_link import Stub

logger = logging.getLogger(__name__)


class NativeWorker:
    """Loads the model, starts its batches, and ends it."""

    def __init__(self, stub: Stub, header: Mapping[str, Any], cls: type[Model]) -> None:
        self._stub = stub
        config = config_from_json(header["config"])
        self._model = NativeModel(cls, config)
        self._terms = Terms.of(header)
        self._context = Context(
            name=header["name"],
            path=Path(header["version_path"]),
            config=config,
            version=header["version"],
            kind=header["kind"],
            device_id=header["device_id"],
            calls=call_model,
        )

    async def serve(self) -> None:
        """Load the model, and serve until the server says that this is the end."""
        logging.basicConfig(level=logging.INFO, handlers=[ServerHandler()])
        try:
            await self._model.load(self._context)
        except BaseException as error:  # a model may raise anything
            self._stub.send(Kind.FAILED, failure(error))
            return
        self._stub.runtime.executing = True
        self._stub.send(Kind.READY, None)
        try:
            await self._serve_batches()
        finally:
            await self._unload()

    async def _serve_batches(self) -> None:
        work = asyncio.Event()
        self._stub.watch(asyncio.get_running_loop(), work.set)
        async with asyncio.TaskGroup() as tasks:
            running: set[asyncio.Task[None]] = set()
            while True:
                await work.wait()
                work.clear()
                while (message := self._stub.take_work()) is not None:
                    kind, header, payload = message
                    if kind == Kind.FINALIZE:
                        for task in running:
                            task.cancel()
                        return
                    if kind in (Kind.REGION, Kind.REGION_GONE):
                        self._stub.borrow(kind, header)
                        continue
                    answer = self._execute if kind == Kind.EXECUTE else self._probe
                    task = tasks.create_task(answer(header, payload))
                    running.add(task)
                    task.add_done_callback(running.discard)

    async def _execute(self, header: Any, payload: memoryview) -> None:
        """Start a batch; the next one may come at once, since requests overlap."""
        number, packed = header
        self._stub.begin(number)
        begun = time.monotonic_ns()
        batch = self._stub.accept(packed, payload, self._terms)
        started = time.monotonic_ns()
        self._stub.send(Kind.DONE, (number, begun, started, started, 0))
        await self._model.execute(batch)
        del batch
        self._stub.tell_let_go()

    async def _probe(self, _: Any, __: memoryview) -> None:
        try:
            ready = await self._model.ready()
        except GeneratorExit:
            raise
        except BaseException as error:  # a model that cannot even say so is not ready
            logger.error("asking the model whether it is ready failed: %s", describe(error))
            ready = False
        self._stub.send(Kind.HEALTH, ready)

    async def _unload(self) -> None:
        try:
            await self._model.unload()
        except GeneratorExit:
            raise
        except BaseException as error:  # the model is gone all the same
            logger.error("unloading failed: %s", describe(error))

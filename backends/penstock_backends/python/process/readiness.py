"""`Readiness`: readiness probes of a `TritonPythonModel`, beside its executions."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.core.log.log_throttle import repeat_note
from penstock.hosting.link.blocking import LinkClosedError
from penstock.hosting.link.messages import Kind
from penstock_backends.python.process.author_code import PythonModel
from penstock_backends.python.process.linked_runtime import LinkedRuntime
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.traceback_text import describe

Answer = Callable[[bool], None]


class Readiness:
    """Calls the model's `is_ready` (contract PY-06) for a probe of the server, one at a time.

    It runs on a thread of its own, so that neither waits for the other; only where `execute` and
    `is_ready` are both coroutines, they share the model's event loop, which calls `probe_on_loop`.
    """

    def __init__(
        self, model: PythonModel, link: ModelLink, runtime: LinkedRuntime, answer: Answer
    ) -> None:
        self._model = model
        self._link = link
        self._runtime = runtime
        self._answer = answer

    def probe(self) -> None:
        """Begin a probe, whose answer goes to the server; does not block."""
        if not self._model.has_readiness:
            self._answer(True)
        elif self._model.asynchronous and self._model.awaits_readiness:
            self._link.add_work(Kind.PROBE)
        else:
            threading.Thread(target=self._run, name="is_ready", daemon=True).start()

    async def probe_on_loop(self) -> None:
        """Await the model's `is_ready`, a coroutine function, and answer."""
        try:
            ready = await self._model.is_ready()
        except GeneratorExit:
            raise
        except BaseException as error:  # a model may raise anything
            self._fail(describe(error))
        else:
            self._check(ready)

    def _run(self) -> None:
        """Call the model's `is_ready` on this thread, and answer."""
        with suppress(LinkClosedError):
            try:
                ready = self._model.is_ready()
                if asyncio.iscoroutine(ready):
                    ready = asyncio.run(ready)
            except BaseException as error:  # a model may raise anything
                self._fail(describe(error))
            else:
                self._check(ready)

    def _check(self, ready: Any) -> None:
        self._link.exit_if_fork()
        if isinstance(ready, bool):
            self._answer(ready)
        else:
            self._fail(f"Expected a bool in the is_ready return, found type '{type(ready)}'.")

    def _fail(self, problem: str) -> None:
        """A model whose `is_ready` fails is not ready."""
        self._link.exit_if_fork()
        if (note := repeat_note("is_ready")) is not None:
            self._runtime.log(logging.ERROR, f"is_ready failed: {problem}{note}", "model.py", 0)
        self._answer(False)

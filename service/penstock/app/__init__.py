"""The composition root: opens everything in order, serves until a signal, closes in reverse."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import NoReturn

import uvloop

from penstock.app.core import ExitTimeoutError, open_repository, open_response_cache, open_server
from penstock.app.endpoints import open_frontends
from penstock.app.model_files import with_model_files
from penstock.app.preflight import StartError, check_ports, check_repository, open_log
from penstock.app.report import show_backends, show_models
from penstock.core.exit_deadline import ExitDeadline
from penstock.metrics.custom import CustomMetrics
from penstock.server.poller import RepositoryPoller
from penstock.server.server import InferenceServer
from penstock.settings import ModelControlMode, RepositorySettings, Settings
from penstock.system.allocator import tune_allocator
from penstock.telemetry.console import join_streams, open_missing, write_line
from penstock.telemetry.metrics import OwnNames


def run(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; returns the process's exit status."""
    open_missing()
    if settings.logging.stream != "split":
        join_streams(settings.logging.stream)
    tune_allocator()
    try:
        open_log(settings.logging)
        with ExitStack() as folders:
            repository = folders.enter_context(with_model_files(settings.repository))
            check_repository(repository)
            check_ports(settings)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                try:
                    runner.run(serve(replace(settings, repository=repository)))
                except ExitTimeoutError as late:
                    folders.close()
                    _end_process(late.__context__)
    except StartError as error:
        return _refused(error)
    return 0


def _refused(error: StartError) -> int:
    write_line(f"error: {error}", sys.stderr)
    return 1


def _end_process(reason: BaseException | None) -> NoReturn:
    """Exit without joining threads; `reason` is the error that stopped the server, if any."""
    status = _refused(reason) if isinstance(reason, StartError) else 0
    logging.shutdown()
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the reader may have closed its end
            output.flush()
    os._exit(status)


async def serve(settings: Settings) -> None:
    """Serve until a signal. What opens last closes first.

    Raises `StartError`, and `ExitTimeoutError` when it could not be stopped in time.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, number, stop)
    async with AsyncExitStack() as stack:
        custom = CustomMetrics(OwnNames())
        cache = await open_response_cache(settings.cache, stack)
        deadline = ExitDeadline(settings.exit_timeout_seconds)
        core = open_server(settings, custom, deadline, cache)
        server = await stack.enter_async_context(core)
        poller = await _poller(server, settings.repository)
        await _load(server, settings, stop)
        if stop.is_set():
            return
        gc.collect()
        gc.freeze()  # objects made at start-up stay alive: later collections skip them
        frontends = open_frontends(server, settings, custom, deadline, cache)
        async with frontends, _following(poller, settings.repository):
            await stop.wait()
            deadline.start()
            server.refuse_new_work()
            await server.finish_sequences(deadline)


async def _poller(server: InferenceServer, settings: RepositorySettings) -> RepositoryPoller | None:
    """A poller of the repository, started from its present state; `None` in other modes."""
    if settings.control_mode is not ModelControlMode.POLL:
        return None
    poller = RepositoryPoller(open_repository(settings), server)
    await poller.changes()
    return poller


def _following(
    poller: RepositoryPoller | None, settings: RepositorySettings
) -> AbstractAsyncContextManager[None]:
    return nullcontext() if poller is None else poller.running(settings.poll_seconds)


async def _load(server: InferenceServer, settings: Settings, stop: asyncio.Event) -> None:
    """Load the start-up models, unless a signal arrives first, and log the results."""
    loading = asyncio.ensure_future(server.start(await _names(server, settings)))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not loading.done():
        loading.cancel()
        await asyncio.wait([loading])
        return
    failures = loading.result()
    show_backends(server.backends(), settings)
    show_models([e for e in await server.index() if e.state], server.model_names())
    if failures and settings.repository.exit_on_error:
        raise StartError("creating server: Internal - failed to load all models")


async def _names(server: InferenceServer, settings: Settings) -> list[str]:
    """The models to load at the start."""
    if not settings.repository.loads_everything:
        return list(settings.repository.startup_models)
    return [entry.name for entry in await server.index()]


def _stop(number: int, stop: asyncio.Event) -> None:
    """The first signal begins a graceful shutdown; later ones change nothing (W-05)."""
    if not stop.is_set():
        stop.set()
        write_line(f"Signal ({number}) received.", sys.stdout)

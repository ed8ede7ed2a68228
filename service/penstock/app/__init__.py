"""The composition root: opens everything in order, serves until a signal, closes in reverse."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeVar

import uvloop

from penstock.app.core import ExitTimeoutError, open_response_cache, open_server
from penstock.app.endpoints import Frontends
from penstock.app.failed_start import failed_start
from penstock.app.first_calls import show_calls
from penstock.app.gpus import open_gpus
from penstock.app.model_files import with_model_files
from penstock.app.preflight import (
    StartError,
    check_repository,
    open_access_log,
    open_audit_log,
    open_log,
)
from penstock.app.report import show_backends, show_models, show_options
from penstock.app.signals import ExitSignals, on_hangup
from penstock.app.tracing import open_export
from penstock.core.errors import InferenceError
from penstock.core.exit_deadline import ExitDeadline
from penstock.metrics.custom import CustomMetrics
from penstock.models.loading.load_graph import code_name
from penstock.server.poller import RepositoryPoller
from penstock.server.server import InferenceServer
from penstock.settings import LogSettings, RepositorySettings, Settings
from penstock.settings.exposures import exposures, open_to_strangers
from penstock.settings.without_effect import without_effect
from penstock.system.allocator import tune_allocator
from penstock.system.process_control import hide
from penstock.system.reaper import Reaper
from penstock.telemetry.access_log import AccessLog
from penstock.telemetry.audit_log import AuditLog
from penstock.telemetry.console import end_process, join_streams, open_missing, write_line
from penstock.telemetry.logging import ServerLog
from penstock.telemetry.metrics import OwnNames

logger = logging.getLogger(__name__)

T = TypeVar("T")

CUT_OFF = 1
"""The exit status of a server that has cut off requests, at the exit timeout or a second signal."""


def run(settings: Settings, *, as_triton: bool = True) -> int:
    """Serve until SIGINT or SIGTERM; returns the process's exit status.

    `as_triton`: as silent about strangers as Triton is.
    """
    hide()
    open_missing()
    if settings.logging.stream != "split":
        join_streams(settings.logging.stream)
    tune_allocator()
    try:
        open_log(settings.logging)
        open_to = () if as_triton else open_to_strangers(settings)
        for line in (*without_effect(settings), *exposures(settings), *open_to):
            logger.warning("%s", line)
        with ExitStack() as leftovers:
            repository = leftovers.enter_context(with_model_files(settings.repository))
            check_repository(repository)
            served = serve(replace(settings, repository=repository), leftovers)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                try:
                    return runner.run(served)
                except ExitTimeoutError as late:
                    leftovers.close()
                    end_process(_status(late))
    except StartError as error:
        return _refused(error)
    except InferenceError as error:
        return _refused(StartError(f"creating server: {code_name(error)} - {error}"))


def _refused(error: StartError) -> int:
    write_line(f"error: {error}", sys.stderr)
    return 1


def _status(late: ExitTimeoutError) -> int:
    """The exit status of a server that could not be stopped in time, or that never started."""
    reason = late.__context__
    if isinstance(reason, StartError):
        return _refused(reason)
    return CUT_OFF if late.cut_off else 0


def _end_now(leftovers: ExitStack, grpc_address: str) -> NoReturn:
    """Exit with requests in flight; model processes, temporary files and sockets are removed."""
    if grpc_address.startswith("unix:"):
        with suppress(OSError):
            os.unlink(grpc_address.removeprefix("unix:"))
    leftovers.close()
    end_process(CUT_OFF)


async def serve(settings: Settings, leftovers: ExitStack) -> int:
    """Serve until a signal; returns the exit status. What opens last closes first.

    `leftovers` gets what must be closed also where the process ends at once. Raises `StartError`,
    and `ExitTimeoutError` when the server could not be stopped in time.
    """
    reaper, log = Reaper(), ServerLog(settings.logging)
    leftovers.callback(reaper.close)
    signals = ExitSignals(partial(_end_now, leftovers, settings.grpc.address))
    signals.listen()
    access = open_access_log(settings.logging.access, lambda: log.is_json)
    if access is not None:
        leftovers.callback(access.close)
    audit = open_audit_log(settings.logging)
    if audit is not None:
        leftovers.callback(audit.close)
    _reopen_on_hangup(settings.logging, log, access, audit)
    deadline = ExitDeadline(settings.exit_timeout_seconds)
    async with AsyncExitStack() as stack:
        custom = CustomMetrics(OwnNames())
        cache = await open_response_cache(settings.cache, stack)
        gpus = stack.enter_context(open_gpus(settings.devices, settings.metrics))
        export = await stack.enter_async_context(open_export(settings, deadline))
        sinks = [] if export is None else [export]
        core = open_server(settings, custom, deadline, reaper, log, gpus, cache, sinks, audit)
        server = await _unless_stopped(signals.stop, stack.enter_async_context(core))
        counts = None if export is None else export.counts
        frontends = Frontends(
            server, settings, custom, deadline, cache, gpus.usage, access, counts, audit
        )
        await frontends.open(stack)
        asking = _poller_and_names(server, settings.repository)
        poller, names = await _unless_stopped(signals.stop, asking)
        await _load(server, settings, names, signals.stop)
        if not signals.stop.is_set():
            gc.collect()
            gc.freeze()  # objects made at start-up stay alive: later collections skip them
            await frontends.open_late(stack)
            telling = asyncio.ensure_future(show_calls(server, settings, frontends.ports))
            loads_later = settings.repository.explicit or settings.repository.polls
            if loads_later and server.remote is not None:
                await asyncio.to_thread(server.remote.expect_loads)
            async with _following(poller, settings.repository):
                await signals.stop.wait()
            telling.cancel()  # it asks models what they speak, which takes a while
        deadline.start()
        server.refuse_new_work(deadline)
        await server.finish_sequences(deadline)
    return CUT_OFF if deadline.cut_off else 0


def _reopen_on_hangup(
    settings: LogSettings, log: ServerLog, access: AccessLog | None, audit: AuditLog | None
) -> None:
    """Open log files anew at SIGHUP, if there are any."""
    reopened = [log.reopen] if settings.file else []
    if access is not None and settings.access != "-":
        reopened.append(access.reopen)
    if audit is not None and settings.audit != "-":
        reopened.append(audit.reopen)
    if reopened:
        on_hangup(lambda: [reopen() for reopen in reopened])


async def _poller(server: InferenceServer, settings: RepositorySettings) -> RepositoryPoller | None:
    """A poller of the repository, started from its present state; `None` in other modes."""
    if not settings.polls or not server.has_repository:
        return None
    poller = RepositoryPoller(server.repository, server)
    await poller.changes()
    return poller


def _following(
    poller: RepositoryPoller | None, settings: RepositorySettings
) -> AbstractAsyncContextManager[None]:
    return nullcontext() if poller is None else poller.running(settings.poll_seconds)


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """The result of what may ask a store, which may not answer.

    Raises `ExitTimeoutError` where a signal arrives first: a thread may wait for the answer.
    """
    asking = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([asking, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not asking.done():
        asking.cancel()
        await asyncio.wait([asking])
    if asking.cancelled():
        raise ExitTimeoutError(0)
    return asking.result()


async def _poller_and_names(
    server: InferenceServer, settings: RepositorySettings
) -> tuple[RepositoryPoller | None, list[str]]:
    return await _poller(server, settings), await _names(server, settings)


async def _load(
    server: InferenceServer, settings: Settings, names: list[str], stop: asyncio.Event
) -> None:
    """Load the start-up models, unless a signal arrives first, and log the results."""
    loading = asyncio.ensure_future(server.start(names))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not loading.done():
        loading.cancel()
        await asyncio.wait([loading])
        return
    failures = loading.result()
    show_backends(server.backends(), settings)
    show_models([e for e in await server.index() if e.state], server.model_names(), settings)
    show_options(settings, await server.metadata())
    if failures and settings.repository.exit_on_error:
        logger.warning("the server ends; with --exit-on-error=false it serves the other models")
        raise failed_start(failures, settings.repository)


async def _names(server: InferenceServer, settings: RepositorySettings) -> list[str]:
    """The models to load at the start."""
    if not settings.loads_everything:
        find = server.repository.full_names
        found = await asyncio.gather(*(asyncio.to_thread(find, n) for n in settings.startup_models))
        return [name for names in found for name in names]
    return [entry.name for entry in await server.index()]

"""The composition root: opens everything in order, serves until a signal, closes in reverse."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from pathlib import Path
from typing import NoReturn

import uvloop

from penstock import __version__
from penstock.caching import ResponseCache
from penstock.caching.opening import open_cache
from penstock.core.allocator import tune_allocator
from penstock.core.countdown import Countdown
from penstock.core.custom_metrics import CustomMetrics
from penstock.core.errors import ConfigError
from penstock.core.exposition import render
from penstock.core.placement import Placement
from penstock.gateway.server import open_gateway, open_metrics
from penstock.hosting.reaper import Reaper
from penstock.models import trace_settings
from penstock.models.devices import visible_gpus
from penstock.models.lifecycle import ModelLifecycle
from penstock.models.loader import ModelLoader
from penstock.models.polling import RepositoryPoller
from penstock.models.repository import ModelRepository
from penstock.models.server import InferenceServer, ServerIdentity
from penstock.models.services import LocalServices
from penstock.models.trace_settings import TraceControl
from penstock.models.views import ModelIndexEntry
from penstock.regions.registry import Regions
from penstock.rpc.server import open_grpc
from penstock.scheduling.rate_limiter import Limit, RateLimiter
from penstock.settings import (
    CacheSettings,
    DeviceSettings,
    ModelControlMode,
    RateLimitSettings,
    RepositorySettings,
    Settings,
    TraceSettings,
)
from penstock.startup import StartError, check_ports, check_repository, open_log
from penstock.telemetry import logging as server_log
from penstock.telemetry.machine import MachineUsage
from penstock.telemetry.metrics import MetricsPage, OwnNames
from penstock.telemetry.tables import table

logger = logging.getLogger(__name__)


class ExitTimeoutError(Exception):
    """Models could not be ended in time, and the threads of some may go on for ever."""


def run(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; the process's exit status."""
    tune_allocator()
    try:
        open_log(settings.logging)
        check_repository(settings.repository)
        check_ports(settings)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(serve(settings))
            except ExitTimeoutError as late:
                _end_process(late.__context__)
    except StartError as error:
        return _refused(error)
    return 0


def _refused(error: StartError) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return 1


def _end_process(reason: BaseException | None) -> NoReturn:
    """End it without waiting for threads; `reason` is why the server was stopped, if not asked."""
    status = _refused(reason) if isinstance(reason, StartError) else 0
    logging.shutdown()
    for output in (sys.stdout, sys.stderr):
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
        cache = await _open_cache(settings.cache, stack)
        countdown = Countdown(settings.exit_timeout_seconds)
        core = open_server(settings, custom, countdown, cache)
        server = await stack.enter_async_context(core)
        poller = await _poller(server, settings.repository)
        await _load(server, settings, stop)
        if stop.is_set():
            return
        gc.collect()
        gc.freeze()  # what the start has made stays: no later collection has to look at it
        frontends = open_frontends(server, settings, custom, countdown, cache)
        async with frontends, _following(poller, settings.repository):
            await stop.wait()
            countdown.start()
            server.refuse()
            await server.finish_sequences(countdown)


async def _poller(server: InferenceServer, settings: RepositorySettings) -> RepositoryPoller | None:
    """What follows the repository, from how it is now on, if it shall be followed."""
    if settings.control_mode is not ModelControlMode.POLL:
        return None
    poller = RepositoryPoller(_repository(settings), server)
    await poller.look()
    return poller


def _following(
    poller: RepositoryPoller | None, settings: RepositorySettings
) -> AbstractAsyncContextManager[None]:
    return nullcontext() if poller is None else poller.running(settings.poll_seconds)


def _repository(settings: RepositorySettings) -> ModelRepository:
    return ModelRepository([Path(path) for path in settings.paths], settings.config_name)


async def _open_cache(settings: CacheSettings, stack: AsyncExitStack) -> ResponseCache | None:
    try:
        return await stack.enter_async_context(open_cache(settings.config))
    except ConfigError as error:
        raise StartError(f"creating server: Invalid argument - {error}") from error


def _rate_limiter(settings: RateLimitSettings) -> RateLimiter | None:
    if settings.mode == "off":
        return None
    return RateLimiter(Limit(r.name, r.count, r.device) for r in settings.resources)


def _placements(settings: DeviceSettings) -> dict[str, Placement]:
    try:
        return {name: Placement.of(name, said) for name, said in settings.host_policies.items()}
    except ConfigError as error:
        raise StartError(f"creating server: Invalid argument - {error}") from error


@asynccontextmanager
async def open_server(
    settings: Settings,
    custom: CustomMetrics,
    countdown: Countdown,
    cache: ResponseCache | None = None,
) -> AsyncIterator[InferenceServer]:
    """The core: repository, models and facade. On closing, everything is unloaded."""
    repository = _repository(settings.repository)
    reaper = Reaper()
    loader = ModelLoader(
        settings.backends.of,
        reaper,
        auto_complete=settings.repository.auto_complete_config,
        gpus=visible_gpus(),
        cache=cache,
        max_pending=settings.max_pending_requests,
        limiter=_rate_limiter(settings.rate_limit),
        placements=_placements(settings.devices),
        gpu_limits=settings.devices.load_limits,
        measurement=settings.metrics.latencies if settings.metrics.enabled else None,
    )
    lifecycle = ModelLifecycle(
        repository,
        loader,
        load_threads=settings.repository.load_thread_count,
        load_retries=settings.repository.load_retry_count,
        scratch=reaper.folder,
    )
    server = InferenceServer(
        ServerIdentity(settings.id, __version__),
        repository,
        lifecycle,
        explicit_control=settings.repository.control_mode is ModelControlMode.EXPLICIT,
        strict_readiness=settings.repository.strict_readiness,
        trace=TraceControl(_trace_settings(settings.trace)),
        log=server_log.ServerLog(settings.logging),
        regions=Regions(allowed=settings.client_shared_memory),
    )
    loader.factory.services = LocalServices(server, lifecycle, custom)
    try:
        yield server
    finally:
        in_time = await server.stop(countdown)
        reaper.close()
        server.regions.close()
        if not in_time:
            raise ExitTimeoutError


def _trace_settings(settings: TraceSettings) -> trace_settings.TraceSettings:
    """What the start says of traces."""
    return trace_settings.TraceSettings(
        levels=settings.levels,
        rate=settings.rate,
        count=settings.count,
        log_frequency=settings.log_frequency,
        file=settings.file,
    )


@asynccontextmanager
async def open_frontends(
    server: InferenceServer,
    settings: Settings,
    custom: CustomMetrics,
    countdown: Countdown,
    cache: ResponseCache | None = None,
) -> AsyncIterator[dict[str, int]]:
    """Every endpoint that the settings ask for; yields their ports by name."""
    ports: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        try:
            if settings.grpc.enabled:
                grpc = open_grpc(server, settings.grpc, countdown)
                ports["grpc"] = await stack.enter_async_context(grpc)
            if settings.http.enabled:
                http = open_gateway(server, settings.http, countdown)
                ports["http"] = await stack.enter_async_context(http)
            if settings.metrics.enabled:
                page = _metrics_page(server, settings, custom, cache)
                metrics = open_metrics(page, settings.metrics)
                ports["metrics"] = await stack.enter_async_context(metrics)
        except OSError as error:
            raise StartError(str(error)) from error
        yield ports


def _metrics_page(
    server: InferenceServer, settings: Settings, custom: CustomMetrics, cache: ResponseCache | None
) -> Callable[[], str]:
    """What makes the metrics page: the server's numbers, then those of the models' own."""
    machine = MachineUsage() if settings.metrics.cpu else None
    latencies = settings.metrics.latencies
    page = MetricsPage(server.snapshot, server.gauges, machine, cache, latencies)
    return lambda: page.text() + render(custom.snapshot())


async def _load(server: InferenceServer, settings: Settings, stop: asyncio.Event) -> None:
    """Load the models of the start, unless a signal comes first, and show what became of them."""
    loading = asyncio.ensure_future(server.start(await _names(server, settings)))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not loading.done():
        loading.cancel()
        await asyncio.wait([loading])
        return
    failures = loading.result()
    _show_models([entry for entry in await server.index() if entry.state])
    if failures and settings.repository.exit_on_error:
        raise StartError("creating server: Internal - failed to load all models")


async def _names(server: InferenceServer, settings: Settings) -> list[str]:
    """The models to load at the start."""
    if not settings.repository.loads_everything:
        return list(settings.repository.startup_models)
    return [entry.name for entry in await server.index()]


def _show_models(entries: Sequence[ModelIndexEntry]) -> None:
    """The table of models and what became of them (contract M-18)."""
    rows = [(e.name, e.version, ": ".join(filter(None, (e.state, e.reason)))) for e in entries]
    server_log.log_table(logger, table(("Model", "Version", "Status"), rows))


def _stop(number: int, stop: asyncio.Event) -> None:
    """The first signal asks for a graceful end; later ones change nothing (W-05)."""
    if not stop.is_set():
        print(f"Signal ({number}) received.", flush=True)
        stop.set()

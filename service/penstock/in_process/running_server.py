"""`RunningServer`: the server's core on an event loop of its own, without a port."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import thread
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass

from penstock.app.core import ExitTimeoutError, open_response_cache, open_server
from penstock.app.endpoints import Frontends, metrics_scraper
from penstock.app.failed_start import failed_start
from penstock.app.gpus import ServerGpus, open_gpus
from penstock.app.preflight import StartError, check_repository, open_audit_log, open_log
from penstock.caching import ResponseCache
from penstock.core.errors import InferenceError
from penstock.core.exit_deadline import ExitDeadline
from penstock.in_process.errors import InternalError, TritonError, UnavailableError, error_from
from penstock.in_process.host_metrics import MetricsOfAll
from penstock.in_process.loop_thread import HeldContext, LoopThread
from penstock.server.poller import RepositoryPoller
from penstock.server.server import InferenceServer
from penstock.settings import Settings
from penstock.settings.without_effect import without_effect
from penstock.system.reaper import Reaper
from penstock.telemetry.audit_log import AuditLog
from penstock.telemetry.logging import ServerLog
from penstock.telemetry.metrics import OwnNames
from penstock.telemetry.scrape import Scraper

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Core:
    """The parts that are open while a server runs."""

    server: InferenceServer
    scraper: Scraper
    poller: RepositoryPoller | None
    frontends: Callable[[Settings], Frontends]


class RunningServer:
    """A server from its start to its stop. Its methods are for any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._leftovers = ExitStack()
        self.loop = LoopThread("penstock-server")
        try:
            self._held, self._core = self.loop.run(self._start())
        except BaseException:
            self.loop.close()
            self._leftovers.close()
            raise
        self._frontends: list[HeldContext[int]] = []
        self.stopped = False
        stop_at_exit(self.stop)

    @property
    def core(self) -> InferenceServer:
        """The facade, to be called on the loop."""
        return self._core.server

    def stop(self) -> None:
        """Close the frontends, complete what is in flight, unload all models, end the loop."""
        if self.stopped:
            return
        self.stopped = True
        withdraw(self.stop)
        try:
            self.loop.run(self._stop())
        except ExitTimeoutError as late:
            self.loop.close(wait_for_threads=False)
            raise InternalError("Exit timeout expired. Exiting immediately.") from late
        finally:
            self.loop.close()
            self._leftovers.close()

    def finish(self) -> None:
        """Stop after the last reference, on another thread where the loop's own has dropped it."""
        if self.loop.is_current:
            threading.Thread(target=self.stop, name="penstock-stop").start()
        else:
            self.stop()

    async def metrics(self) -> str:
        """The metrics page."""
        return (await self._core.scraper.scrape()).body.decode()

    async def poll(self) -> None:
        """Load and unload what has changed in the repository, in the mode for that."""
        if self._core.poller is None:
            raise UnavailableError("polling is disabled")
        await self._core.poller.poll()

    async def open_frontend(self, settings: Settings) -> tuple[HeldContext[int], int]:
        """Open the one endpoint that the settings enable: what holds it, and its port."""
        held = HeldContext(_listening(self._core.frontends(settings)))
        try:
            port = await held.open()
        except StartError as error:
            raise _translated(error) from error
        self._frontends.append(held)
        return held, port

    async def close_frontend(self, held: HeldContext[int]) -> None:
        """Close an endpoint, if that was not done."""
        if held in self._frontends:
            self._frontends.remove(held)
            await held.close()

    async def _start(self) -> tuple[HeldContext[_Core], _Core]:
        try:
            _open_log(self.settings)
            check_repository(self.settings.repository)
            held = HeldContext(_open_core(self.settings, self._leftovers))
            return held, await held.open()
        except StartError as error:
            raise _translated(error) from error

    async def _stop(self) -> None:
        for held in list(self._frontends):
            await self.close_frontend(held)
        await self._held.close()


@asynccontextmanager
async def _open_core(settings: Settings, leftovers: ExitStack) -> AsyncIterator[_Core]:
    """The core with its models loaded; at the end it completes its work as a served one does."""
    reaper, log = Reaper(), ServerLog(settings.logging)
    leftovers.callback(reaper.close)
    audit = open_audit_log(settings.logging)
    if audit is not None:
        leftovers.callback(audit.close)
    custom, deadline = MetricsOfAll(OwnNames()), ExitDeadline(settings.exit_timeout_seconds)
    async with AsyncExitStack() as stack:
        cache = await open_response_cache(settings.cache, stack)
        gpus = stack.enter_context(open_gpus(settings.devices, settings.metrics))
        opening = open_server(settings, custom, deadline, reaper, log, gpus, cache, (), audit)
        server = await stack.enter_async_context(opening)
        poller = await _poller(server, settings)
        failures = await server.start(await _names(server, settings))
        if failures and settings.repository.exit_on_error:
            raise failed_start(failures, settings.repository)
        scraper = metrics_scraper(server, settings, custom, cache, gpus.usage, None, (), audit)
        yield _Core(server, scraper, poller, _frontends(server, custom, cache, gpus, audit))
        deadline.start()
        server.refuse_new_work(deadline)
        await server.finish_sequences(deadline)


def _frontends(
    server: InferenceServer,
    custom: MetricsOfAll,
    cache: ResponseCache | None,
    gpus: ServerGpus,
    audit: AuditLog | None,
) -> Callable[[Settings], Frontends]:
    def frontends(settings: Settings) -> Frontends:
        # One that is stopped before the server has a deadline of its own, which runs from then.
        deadline = ExitDeadline(settings.exit_timeout_seconds)
        return Frontends(server, settings, custom, deadline, cache, gpus.usage, audit=audit)

    return frontends


@asynccontextmanager
async def _listening(frontends: Frontends) -> AsyncIterator[int]:
    """The only endpoint of `frontends`, open; its port."""
    async with AsyncExitStack() as stack:
        await frontends.open(stack)
        await frontends.open_late(stack)
        (port,) = frontends.ports.values()
        yield port


async def _poller(server: InferenceServer, settings: Settings) -> RepositoryPoller | None:
    if not settings.repository.polls or not server.has_repository:
        return None
    poller = RepositoryPoller(server.repository, server)
    await poller.changes()
    return poller


async def _names(server: InferenceServer, settings: Settings) -> list[str]:
    if not settings.repository.loads_everything:
        return list(settings.repository.startup_models)
    return [entry.name for entry in await server.index()]


def _open_log(settings: Settings) -> None:
    """Open the log if the options ask for one; a host's own logging is left alone otherwise."""
    log = settings.logging
    if log.error or log.file:
        open_log(log)
        for line in without_effect(settings):
            logger.warning("%s", line)
        return
    for name in ("penstock", "penstock_backends"):
        own = logging.getLogger(name)
        if not own.handlers:
            own.addHandler(logging.NullHandler())


def _translated(error: StartError) -> TritonError:
    """The error behind a failed start, or one of the class whose code its text begins with."""
    if isinstance(error.__cause__, InferenceError):
        return error_from(error.__cause__)
    return InternalError(str(error).removeprefix("creating server: Internal - "))


_STOPS: list[Callable[[], None]] = []


def stop_at_exit(stop: Callable[[], None]) -> None:
    """Call `stop` when the program ends, unless it is withdrawn."""
    _STOPS.append(stop)


def withdraw(stop: Callable[[], None]) -> None:
    """Do not call `stop` any more."""
    if stop in _STOPS:
        _STOPS.remove(stop)


def _stop_all() -> None:
    for stop in reversed(_STOPS):
        try:
            stop()
        except Exception:  # the others are stopped too
            logger.exception("a server could not be stopped")


# Functions of `atexit` run when executors take no work any more, of which a stop needs some. Those
# of `threading`, which executors use for that, run last registered first: so ahead of theirs.
assert thread is not None
getattr(threading, "_register_atexit", atexit.register)(_stop_all)

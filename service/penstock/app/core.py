"""Opens the server without its frontends: response cache, model repository, models and facade."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

from penstock import __version__
from penstock.access.current import current_caller
from penstock.access.watch import PolicyWatch
from penstock.app.gpus import ServerGpus
from penstock.app.preflight import StartError
from penstock.caching import ResponseCache
from penstock.caching.registry import open_cache
from penstock.core.access import AuditSink
from penstock.core.errors import ConfigError, InferenceError, UnsupportedError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.placement import Placement
from penstock.metrics.custom import CustomMetrics
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.loading.load_graph import code_name
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.repository.integrity import SignatureKey
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.residency import ModelResidency
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.limits import budget_limits
from penstock.models.sizing.measured import MeasuredSizes
from penstock.scheduling.rate_limiter import Limit, RateLimiter
from penstock.scheduling.tokens.tenants import Tenants, read_tenants
from penstock.server.answers import ServerMetadata
from penstock.server.control_policy import ControlPolicy
from penstock.server.model_services import LocalServices
from penstock.server.server import InferenceServer
from penstock.settings import (
    CacheSettings,
    DeviceSettings,
    RateLimitSettings,
    RepositorySettings,
    Settings,
)
from penstock.shared_memory.registry import Regions
from penstock.system.body_room import memory_size
from penstock.system.machine import MachineUsage
from penstock.system.model_variables import pass_also
from penstock.system.reaper import Reaper
from penstock.telemetry.logging import ServerLog
from penstock.tracing.model_environment import model_environment
from penstock.tracing.settings import TraceControl
from penstock.tracing.trace_writer import TraceWriter
from penstock.tracing.tracer import Tracer, TraceSink

logger = logging.getLogger(__name__)

_LOAD_SECONDS = 1.0
"""Seconds after which the machine is read again for load reports."""


class ExitTimeoutError(Exception):
    """Models could not be unloaded in time; threads of some may never end."""

    def __init__(self, cut_off: int) -> None:
        super().__init__(cut_off)
        self.cut_off = cut_off


@asynccontextmanager
async def open_server(
    settings: Settings,
    custom: CustomMetrics,
    deadline: ExitDeadline,
    reaper: Reaper,
    log: ServerLog,
    gpus: ServerGpus,
    cache: ResponseCache | None = None,
    sinks: Sequence[TraceSink] = (),
    audit: AuditSink | None = None,
) -> AsyncIterator[InferenceServer]:
    """The core: repository, models and facade. On closing, everything is unloaded."""
    cached = settings.repository.cache_dir, settings.repository.cache_size
    with closing(RemoteRepositories(*cached, os.environ)) as remote:
        found = await asyncio.to_thread(_found_repository, settings.repository, remote)
        repository = found or ModelRepository(())
        tenants = _tenants(settings)
        key = await asyncio.to_thread(_signature_key, settings.repository)
        sizes = _measured_sizes(settings)
        await asyncio.to_thread(sizes.read)
        budget = _memory_budget(settings, gpus, sizes)
        builder = _version_builder(settings, reaper, gpus, cache, tenants, key, budget)
        lifecycle = _lifecycle(settings.repository, repository, builder, reaper)
        trace = TraceControl(settings.trace, tensors=settings.trace_tensors)
        writer = TraceWriter(trace) if settings.trace.mode == "triton" else None
        sinks = sinks if writer is None else (*sinks, writer)
        tracer = Tracer(trace, sinks, propagates=settings.trace.mode == "opentelemetry")
        server = _facade(settings, repository, lifecycle, trace, tracer, log, tenants)
        if settings.repository.on_demand:
            server.residency = ModelResidency(
                repository,
                lifecycle,
                budget,
                timeout=settings.repository.demand_timeout,
                sizes=None if settings.devices.sizes_file == _NOT_MEASURED else sizes,
                gpu_processes=gpus.processes,
            )
        server.has_repository = found is not None
        server.remote = remote
        watch = await asyncio.to_thread(_access_watch, settings, audit)
        server.audit = audit
        server.access = None if watch is None else watch.gate
        server.load_meter.plug_in(MachineUsage(_LOAD_SECONDS), custom.snapshot)
        pass_also(settings.backends.model_env)
        builder.factory.services = LocalServices(server, lifecycle, custom)
        builder.factory.environment = model_environment(settings.trace, os.environ)
        try:
            async with AsyncExitStack() as watching:
                await watching.enter_async_context(server.releases.running())
                if server.residency is not None:
                    await watching.enter_async_context(server.residency.running())
                if watch is not None:
                    await watching.enter_async_context(watch.running())
                yield server
        finally:
            remote.stop()
            await builder.factory.starter.close()
            in_time = await server.stop(deadline)
            if writer is not None:
                await asyncio.to_thread(writer.close)
            reaper.close()
            server.regions.close()
            if not in_time or remote.has_left:
                raise ExitTimeoutError(deadline.cut_off)


def _lifecycle(
    settings: RepositorySettings,
    repository: ModelRepository,
    builder: VersionBuilder,
    reaper: Reaper,
) -> ModelLifecycle:
    return ModelLifecycle(
        repository,
        builder,
        load_threads=settings.load_thread_count,
        load_retries=settings.load_retry_count,
        scratch=reaper.folder,
    )


def _version_builder(
    settings: Settings,
    reaper: Reaper,
    gpus: ServerGpus,
    cache: ResponseCache | None,
    tenants: Tenants | None,
    signature_key: SignatureKey | None,
    budget: MemoryBudget | None,
) -> VersionBuilder:
    return VersionBuilder(
        settings.backends.options_for,
        reaper,
        auto_complete=settings.repository.auto_complete_config,
        gpus=gpus.usable,
        cpu_only=settings.devices.cpu_only,
        cache=cache,
        max_pending=settings.max_pending_requests,
        limiter=_rate_limiter(settings.rate_limit),
        placements=_placements(settings.devices),
        gpu_limits=settings.devices.load_limits,
        used_memory=gpus.used_memory,
        max_responses=settings.grpc.max_response_pool_size,
        measurement=settings.metrics.latencies if settings.metrics.enabled else None,
        fairness=None if tenants is None else tenants.policy,
        openai_tokenizer=settings.openai.tokenizer if settings.openai.enabled else "",
        signature_key=signature_key,
        budget=budget,
        spare_processes=settings.spare_processes,
    )


_NOT_MEASURED = "off"
"""The value of `--measured-sizes` with which models count as estimated."""


def _measured_sizes(settings: Settings) -> MeasuredSizes:
    """What was measured of models, kept in a file where models are loaded by calls."""
    file = settings.devices.sizes_file
    if not settings.repository.on_demand or file == _NOT_MEASURED:
        return MeasuredSizes(None)
    caches = os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache")
    return MeasuredSizes(Path(file or Path(caches, "penstock", "measured-sizes.json")))


def _memory_budget(
    settings: Settings, gpus: ServerGpus, sizes: MeasuredSizes
) -> MemoryBudget | None:
    wanted = settings.devices.memory_budget
    if not wanted:
        return None
    try:
        limits = budget_limits(wanted, memory_size(), gpus.memory())
    except ConfigError as error:
        raise StartError(f"creating server: Invalid argument - {error}") from error
    return MemoryBudget(
        limits,
        tuple(gpus.usable),
        gpus.least_memory(),
        tells_names=not settings.access_policy,
        remembered=sizes.of,
    )


def _facade(
    settings: Settings,
    repository: ModelRepository,
    lifecycle: ModelLifecycle,
    trace: TraceControl,
    tracer: Tracer,
    log: ServerLog,
    tenants: Tenants | None,
) -> InferenceServer:
    return InferenceServer(
        ServerMetadata(settings.id, __version__),
        repository,
        lifecycle,
        explicit_control=settings.repository.explicit,
        engine_control=settings.engine_control,
        strict_readiness=settings.repository.strict_readiness,
        trace=trace,
        log=log,
        regions=Regions(allowed=settings.client_shared_memory, prefix=settings.client_shm_prefix),
        tracer=tracer,
        tenants=tenants,
        control_policy=ControlPolicy(
            settings.trace_control,
            settings.log_control,
            settings.model_upload,
            by_secret=not settings.secure,
        ),
        most_elements=settings.max_bytes_elements,
        alias_folders=[Path(p) for p in settings.repository.paths if "://" not in p],
    )


def _found_repository(
    settings: RepositorySettings, remote: RemoteRepositories
) -> ModelRepository | None:
    """The repository; `None` where there is none to read, and that does not end the start."""
    goes_on = not settings.exit_on_error
    try:
        found = ModelRepository(
            settings.paths,
            settings.config_name,
            remote.open,
            keeps_going=goes_on,
            namespacing=settings.namespacing,
        )
    except InferenceError as error:
        if not goes_on:
            raise
        logger.error("%s: %s; nothing is served", code_name(error), error)
        return None
    for why in found.missing.values():
        logger.error("%s: %s; the other repositories are served", code_name(why), why)
    return found


def _signature_key(settings: RepositorySettings) -> SignatureKey | None:
    if not settings.signature_key:
        return None
    # Of all model processes: what they would write beside the code of a model is not signed.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        return SignatureKey(Path(settings.signature_key))
    except (ConfigError, UnsupportedError) as error:
        raise StartError(f"creating server: {code_name(error)} - {error}") from error


async def open_response_cache(
    settings: CacheSettings, stack: AsyncExitStack
) -> ResponseCache | None:
    try:
        return await stack.enter_async_context(open_cache(settings.config))
    except ConfigError as error:
        raise StartError(f"creating server: Invalid argument - {error}") from error


def _tenants(settings: Settings) -> Tenants | None:
    if not settings.tenants:
        return None
    try:
        return read_tenants(
            Path(settings.tenants),
            settings.tenant_header,
            trusts_id=settings.trust_fairness_id,
            caller=current_caller if settings.access_policy else None,
        )
    except ConfigError as error:
        raise StartError(f"creating server: Invalid argument - {error}") from error


def _access_watch(settings: Settings, audit: AuditSink | None) -> PolicyWatch | None:
    if not settings.access_policy:
        return None
    try:
        return PolicyWatch(Path(settings.access_policy), audit)
    except ConfigError as error:
        raise StartError(f"creating server: Invalid argument - {error}") from error


def _rate_limiter(settings: RateLimitSettings) -> RateLimiter | None:
    if settings.mode == "off":
        return None
    return RateLimiter(Limit(r.name, r.count, r.device) for r in settings.resources)


def _placements(settings: DeviceSettings) -> dict[str, Placement]:
    try:
        return {
            name: Placement.from_settings(name, policy)
            for name, policy in settings.host_policies.items()
        }
    except ConfigError as error:
        raise StartError(f"creating server: Invalid argument - {error}") from error

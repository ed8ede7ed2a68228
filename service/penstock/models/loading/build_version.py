"""`VersionBuilder`: builds a `LoadedModel` of one version from the files of its model."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from penstock.caching import ResponseCache
from penstock.caching.key import CacheKeys
from penstock.core.backend import Backend, WithApplication, announced
from penstock.core.config import InstanceKind, ModelConfig, config_to_json
from penstock.core.config.scheduling import EnsembleStep
from penstock.core.errors import InferenceError, ModelLoadError, UnavailableError
from penstock.core.http_exchange import AsgiApp
from penstock.core.placement import Placement
from penstock.core.request import ANY_VERSION
from penstock.inflight.inference import RunningRequests
from penstock.inflight.statistics import Statistics
from penstock.metrics.measurement import Measurement
from penstock.models.config.defaults import normalized
from penstock.models.config.pins import pins_of
from penstock.models.config.unsupported import refuse_unsupported
from penstock.models.config.validation import validate
from penstock.models.config.validation.composition import composed
from penstock.models.loading.acceptance import accepted, refuse_whatever_versions, settled
from penstock.models.loading.backends import FoundBackend, backend_of
from penstock.models.loading.dependencies import needs_of
from penstock.models.loading.instance_factory import BackendSettingsOf, InstanceFactory, host_of
from penstock.models.loading.resizing import Resizing, matched
from penstock.models.loading.schedulers import ensemble_scheduler, make_scheduler
from penstock.models.loading.statistics_of import statistics_of
from penstock.models.loading.token_queues import token_queue
from penstock.models.loading.warmup import read_samples, warm_up
from penstock.models.repository.integrity import SignatureKey, check_files
from penstock.models.repository.repository import ModelFiles, naming_misplaced_config
from penstock.models.repository.version_files import VersionFiles, origin_of
from penstock.models.serving.instance import ModelInstance
from penstock.models.serving.loaded_ensemble import LoadedEnsemble
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.models.serving.server_application import ServerApplication
from penstock.models.sizing.budget import Claim, MemoryBudget, Sizes
from penstock.models.sizing.estimate import ModelFacts
from penstock.models.sizing.measured import stamped_facts
from penstock.scheduling import Scheduler
from penstock.scheduling.batching.dynamic_batcher import DynamicBatcher
from penstock.scheduling.cached import CachedScheduler
from penstock.scheduling.rate_limiter import RateLimiter
from penstock.scheduling.tokens.scheduler import TokenScheduler
from penstock.scheduling.tokens.tenant_accounts import TenantAccounts
from penstock.scheduling.tokens.tenants import FairnessPolicy
from penstock.system.allocator import return_freed_memory
from penstock.system.reaper import Reaper

logger = logging.getLogger(__name__)

FindModel = Callable[[str, int], LoadedModel]


class VersionBuilder:
    """Builds model versions: configuration, instances and scheduler, started and warmed up.

    `settings_of` returns the command line's settings of a backend. `backends` are those that models
    have used so far: name to file. `max_pending` limits the queue of each model, 0 for no limit;
    `gpu_limits` are fractions of the memory of GPUs, of which `used_memory` tells what is in use.
    With `cpu_only`, instance groups for GPUs are served on the CPU. With `fairness`, language
    models are shared between tenants. `openai_tokenizer` is the file or folder of the tokenizer of
    text models that name none. With `signature_key`, models must be signed. `budget` is the memory
    that all models may take, if that is limited. `spare_processes` are kept ready for models in
    processes. `running` has the requests of all models by their ids.
    """

    def __init__(
        self,
        settings_of: BackendSettingsOf,
        reaper: Reaper,
        *,
        auto_complete: bool = True,
        gpus: Sequence[int] = (),
        cpu_only: bool = False,
        cache: ResponseCache | None = None,
        max_pending: int = 0,
        limiter: RateLimiter | None = None,
        placements: Mapping[str, Placement] | None = None,
        gpu_limits: Mapping[int, float] | None = None,
        used_memory: UsedMemory = lambda _: 0.0,
        measurement: Measurement | None = None,
        max_responses: int | None = None,
        fairness: FairnessPolicy | None = None,
        openai_tokenizer: str = "",
        signature_key: SignatureKey | None = None,
        budget: MemoryBudget | None = None,
        spare_processes: int = 0,
    ) -> None:
        self._settings_of = settings_of
        self._auto_complete = auto_complete
        self._gpus = gpus
        self._cpu_only = cpu_only
        self._cache = cache
        self._max_pending = max_pending
        self._gpu_limits = gpu_limits or {}
        self._used_memory = used_memory
        self._measurement = measurement or Measurement()
        self._fairness = fairness
        self._openai_tokenizer = openai_tokenizer
        self._signature_key = signature_key
        self._budget = budget
        self.backends: dict[str, str] = {}
        self.running = RunningRequests()
        self.factory = InstanceFactory(
            settings_of,
            reaper,
            limiter,
            placements or {},
            max_responses,
            fairness is not None,
            spare_processes,
        )

    async def prepare(self, config: ModelConfig) -> None:
        """Have ready what models of the same backend need: a process, or the engine's module."""
        with suppress(InferenceError, ImportError):  # which the load will tell
            settings = self._settings_of(config.backend)
            found = await asyncio.to_thread(backend_of, config, settings)
            if engine := self.factory.prepare(found.backend, config):
                await asyncio.to_thread(import_module, engine)

    async def build(self, files: ModelFiles, version: int) -> LoadedModel:
        """Build one version; raises `ModelLoadError`, or what the backend raises."""
        with naming_misplaced_config(files.path, files.has_config):
            return await self._build(files, version)

    async def _build(self, files: ModelFiles, version: int) -> LoadedModel:
        found = await self._backend_of(files.config)
        backend = found.backend
        path = files.versions[version]
        claim = await self._claim(found, version, path)
        with claim or nullcontext():
            python = await self.factory.interpreter(backend, found.config, path)
            config = await self._complete(found, path, python)
            loaded = await asyncio.to_thread(VersionFiles.read, files, version, config)
            if self._gpu_limits:
                check = partial(check_gpu_memory, config, self._gpu_limits, self._used_memory)
                await asyncio.to_thread(check)
            if claim is not None:
                await self._adjust(claim, config, version, path)
            instances = self.factory.instances(backend, config, version, path, python)
            statistics = statistics_of(config, self._measurement)
            active = [instance for instance in instances if not instance.passive]
            batcher = make_scheduler(config, files.path, active)
            application = await server_application(backend, config, path, self._openai_tokenizer)
            await _start(instances, config, files.path, statistics)
            return self._model(backend, loaded, instances, batcher, statistics, application, claim)

    async def _claim(self, found: FoundBackend, version: int, path: Path) -> Claim | None:
        """What a version takes of the budget, if there is one, by what its model says.

        To complete the configuration may take as much memory, so this is claimed before.
        """
        if self._budget is None:
            return None
        config = found.config
        refuse_whatever_versions(config, found.backend, self._gpus, cpu_only=self._cpu_only)
        facts = await asyncio.to_thread(stamped_facts, self._normalized(config), version, path)
        return self._budget.claim(facts)

    async def _adjust(self, claim: Claim, config: ModelConfig, version: int, path: Path) -> None:
        """Claim what the completed configuration needs more; give back what it needs less."""
        assert self._budget is not None
        facts = await asyncio.to_thread(ModelFacts.read, config, version, path)
        self._budget.adjust(claim, facts)

    def must_check(self, files: ModelFiles) -> bool:
        """Whether the files of a model are to be checked before they are opened."""
        return self._signature_key is not None or any(pins_of(files.config))

    async def check_files(self, files: ModelFiles) -> None:
        """Refuse files that are not the pinned and signed ones; raises `ModelLoadError`."""
        await asyncio.to_thread(check_files, files.config, files.path, self._signature_key)

    async def refusal(self, files: ModelFiles) -> InferenceError | None:
        """Why a model could not be built whatever versions it had, by its configuration alone."""
        config = files.config
        try:
            backend = None
            if not config.is_ensemble:
                found = await self._backend_of(config)
                backend, config = found.backend, found.config
            refuse_whatever_versions(config, backend, self._gpus, cpu_only=self._cpu_only)
        except InferenceError as error:
            return error
        return None

    async def speaks_openai(self, config: ModelConfig) -> bool:
        """Whether a model would have an application, as its configuration tells."""
        if not config.is_ensemble:
            try:
                found = await self._backend_of(config)
            except InferenceError:
                return False
            if issubclass(found.backend, WithApplication):
                return True
        return await asyncio.to_thread(_has_application, config, self._openai_tokenizer)

    async def is_unchanged(self, model: LoadedModel, files: ModelFiles, version: int) -> bool:
        """Whether `model` is alive and matches its files: a reload would change nothing."""
        origin = model.origin
        if origin is None or files.uploaded or not model.alive:
            return False
        former = (_of_any_version(origin.config), _of_any_version(model.config))
        if _of_any_version(files.config) not in former:
            return False
        return origin.has_files_of(await asyncio.to_thread(origin_of, files, version))

    async def prepare_resize(
        self, model: LoadedModel, files: ModelFiles, version: int
    ) -> Resizing | None:
        """Start the instances that `model` lacks; `None` if more than instances has changed.

        Raises as `build` does; the model is then left as it is.
        """
        if model.origin is None or not model.resizable or files.uploaded:
            return None
        origin = await asyncio.to_thread(origin_of, files, version)
        if not origin.differs_in_instances_only(model.origin):
            return None
        backend = (await self._backend_of(files.config)).backend
        groups = files.config.instance_group
        config = self._normalized(replace(model.config, instance_group=groups))
        validate(config, self._gpus)
        backend.check_config(config)
        path = files.versions[version]
        if self._gpu_limits:
            await asyncio.to_thread(check_gpu_memory, config, self._gpu_limits, self._used_memory)
        python = await self.factory.interpreter(backend, config, path)
        wanted = self.factory.instances(backend, config, version, path, python)
        kept, added, removed = matched(wanted, model.instances)
        claim, surplus = await self._claim_growth(model, config, version, path)
        with claim or nullcontext():
            await _start(added, config, files.path, model.statistics)
            return Resizing(model, config, origin, kept, added, removed, claim, surplus)

    async def _claim_growth(
        self, model: LoadedModel, config: ModelConfig, version: int, path: Path
    ) -> tuple[Claim | None, Sizes]:
        """What other instances take more, if they do; and what they take less."""
        if self._budget is None or model.claim is None:
            return None, Sizes()
        facts = await asyncio.to_thread(ModelFacts.read, config, version, path)
        growth = self._budget.grown(model.claim, facts)
        return growth, self._budget.surplus(model.claim, facts)

    async def build_ensemble(
        self, files: ModelFiles, version: int, find: FindModel
    ) -> LoadedEnsemble:
        """Build a version of an ensemble over the models that serve now."""
        configs = {name: find(name, ANY_VERSION).config for name in needs_of(files.config)}
        config = composed(normalized(files.config), configs)
        validate(config)
        refuse_unsupported(config)
        loaded = await asyncio.to_thread(VersionFiles.read, files, version, config)
        assert config.ensemble_scheduling is not None
        steps = config.ensemble_scheduling.step
        models = [find(step.model, step.model_version) for step in steps]
        batcher = ensemble_scheduler(config, models)
        statistics = statistics_of(config, self._measurement)
        scheduler = self._cached(batcher, loaded, batcher)
        statistics.cached = scheduler is not batcher
        application = await server_application(None, config, loaded.path, self._openai_tokenizer)
        if application is not None and not application.opened:
            application = None
        accounts = None if application is None else self._tenant_accounts()
        parts = ModelParts(
            config,
            version,
            scheduler,
            statistics,
            {**labels_of_steps(steps, models), **loaded.labels},
            max_pending=self._max_pending,
            folder=files.folder,
            origin=loaded.origin,
            batcher=batcher,
            running=self.running,
            application=application,
            accounts=accounts,
            queue_metrics=None if accounts is None else accounts.metrics,
        )
        return LoadedEnsemble(parts, models)

    def _model(
        self,
        backend: type[Backend],
        version: VersionFiles,
        instances: Sequence[ModelInstance],
        batcher: Scheduler,
        statistics: Statistics,
        application: ServerApplication | None,
        claim: Claim | None,
    ) -> LoadedModel:
        queue = token_queue(backend, version.config, self._fairness)
        tokens = None if queue is None else TokenScheduler(batcher, queue)
        admitting = tokens or batcher
        scheduler = self._cached(admitting, version, batcher)
        statistics.cached = scheduler is not admitting
        speaks = application is None or application.opened
        accounts = self._tenant_accounts() if tokens is None and speaks else None
        counted = tokens or accounts
        parts = ModelParts(
            version.config,
            version.number,
            scheduler,
            statistics,
            version.labels,
            max_pending=self._max_pending,
            folder=version.files.folder,
            origin=version.origin,
            batcher=batcher,
            exchanges=None if backend.traits.serial else admitting,
            running=self.running,
            application=application,
            accounts=accounts,
            queue_metrics=None if counted is None else counted.metrics,
            claim=claim,
            takes_device_tensors=(
                backend.traits.takes_device_tensors
                and host_of(backend, version.config) == "thread"
                and not statistics.cached  # the cache needs the bytes on the host
            ),
        )
        model = LoadedModel(parts, instances)
        if tokens is not None:
            tokens.capacity = model.places
        return model

    def _tenant_accounts(self) -> TenantAccounts | None:
        """The counters of what tenants ask of OpenAI's API of a model without queues of theirs."""
        return None if self._fairness is None else TenantAccounts(self._fairness)

    def _cached(self, scheduler: Scheduler, version: VersionFiles, batcher: Scheduler) -> Scheduler:
        """The scheduler, behind the response cache if the model enables it and there is one.

        What the cache answers waits for its turn, too, where `batcher` keeps an order.
        """
        wanted = version.config.response_cache
        if self._cache is None or wanted is None or not wanted.enable:
            return scheduler
        # A shared cache needs the same keys on every server; a local one is not reused on reload.
        salt = b"" if self._cache.shared else os.urandom(8)
        keys = CacheKeys(version.config.name, version.number, salt)
        order = batcher.hand_over_order() if isinstance(batcher, DynamicBatcher) else None
        return CachedScheduler(scheduler, self._cache, keys, order)

    async def _backend_of(self, config: ModelConfig) -> FoundBackend:
        """The backend of a model, recorded in `backends`."""
        settings = self._settings_of(config.backend)
        found = await asyncio.to_thread(backend_of, config, settings)
        self.backends.update(found.files())
        return found

    async def _complete(self, found: FoundBackend, path: Path, python: str | None) -> ModelConfig:
        """The complete configuration, validated; raises for what is not supported."""
        backend, config = found.backend, found.config
        if self._auto_complete:
            settings = dict(self._settings_of(config.backend))
            if python is not None:
                settings["python"] = python
            completed = await backend.complete_config(config, path, settings)
            if completed != config and logger.isEnabledFor(logging.DEBUG):
                _log_completed(completed)
            config = completed
        return accepted(config, backend, self._gpus, cpu_only=self._cpu_only)

    def _normalized(self, config: ModelConfig) -> ModelConfig:
        """The configuration with all defaults, its instances on devices that may be used."""
        return settled(config, self._gpus, cpu_only=self._cpu_only)


def _of_any_version(config: ModelConfig) -> ModelConfig:
    """A configuration without what chooses versions, which changes none of them."""
    return replace(config, version_policy=None)


def _log_completed(config: ModelConfig) -> None:
    """Log a configuration as it was completed, in Triton's form (contract AC-16)."""
    text = json.dumps(config_to_json(config, with_defaults=True), indent=4)
    logger.info("post auto-complete:\n%s", text, extra={"verbatim": True})


async def _start(
    instances: Sequence[ModelInstance],
    config: ModelConfig,
    model_path: Path,
    statistics: Statistics,
) -> None:
    """Start instances and warm them up."""
    samples = await asyncio.to_thread(read_samples, config, model_path)
    await start_instances(instances, lambda i: warm_up(i, samples, statistics))


_PARALLEL_LOADING = "TRITON_PARALLEL_INSTANCE_LOADING"
"""At 0 in the environment, instances start one by one, which takes less memory (I-12)."""


async def start_instances(
    instances: Sequence[ModelInstance], prepare: Callable[[ModelInstance], Awaitable[None]]
) -> None:
    """Start and `prepare` all instances; on failure or cancellation, stop those that started.

    What those on threads took for a moment goes back to the system.
    """
    started: list[ModelInstance] = []

    async def start(instance: ModelInstance) -> None:
        await instance.start()
        started.append(instance)
        await prepare(instance)

    try:
        await _each(start, instances)
        if any(instance.process is None for instance in instances):  # a process does it itself
            await asyncio.to_thread(return_freed_memory)
    except BaseException:
        for instance in started:  # also those that died since and would be restarted
            with suppress(Exception):  # the first failure is what counts
                await instance.stop()
        raise


async def _each(
    start: Callable[[ModelInstance], Awaitable[None]], instances: Sequence[ModelInstance]
) -> None:
    """Start instances, together or one by one."""
    if os.environ.get(_PARALLEL_LOADING) == "0":
        for instance in instances:
            await start(instance)
        return
    results = await asyncio.gather(*map(start, instances), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def labels_of_steps(
    steps: Sequence[EnsembleStep], models: Sequence[LoadedModel]
) -> Mapping[str, Sequence[bytes]]:
    """The labels of the tensors that steps make; `models` are theirs, one for each."""
    return {
        tensor: model.labels[output]
        for step, model in zip(steps, models, strict=True)
        for output, tensor in step.output_map.items()
        if output in model.labels
    }


UsedMemory = Callable[[int], float]
"""The fraction of a GPU's memory in use, by CUDA ordinal."""


def check_gpu_memory(config: ModelConfig, limits: Mapping[int, float], used: UsedMemory) -> None:
    """Refuse instances on a GPU above its limit. `used` may block, and raise `ModelLoadError`."""
    groups = [group for group in config.instance_group if group.kind is InstanceKind.KIND_GPU]
    for device in sorted({device for group in groups for device in group.gpus}):
        if device in limits and used(device) > limits[device]:
            raise UnavailableError(
                f"can not create model '{config.name}': memory limit set for GPU {device} has "
                "exceeded, model loading is rejected."
            )


GROUP: Final = "penstock.applications"
"""The entry point group of functions that make the application of a model by its configuration.

They are given the file or folder of the tokenizer that counts its tokens, too, where one is named.
They return `None` for a model that is not of their kind, and may raise what a backend may.
"""

TOKENIZER: Final = "penstock.openai_tokenizer"
"""Parameter of a model: the file or the folder of the tokenizer that its text is counted by."""

MakeApplication = Callable[[ModelConfig, Path | None], AsgiApp | None]


async def server_application(
    backend: type[Backend] | None, config: ModelConfig, version_path: Path, tokenizer: str = ""
) -> ServerApplication | None:
    """The application of a model, which refuses where there is none; `None`: its backend's own.

    `backend` is `None` for an ensemble. `tokenizer` is that of models whose configuration names
    none. Raises `ModelLoadError`.
    """
    if (
        backend is not None
        and issubclass(backend, WithApplication)
        and backend.has_application(config)
    ):
        _warn_of_tokenizer(config, f"backend '{config.backend}' has an application of its own")
        return None
    application = ServerApplication(config.name, partial(_made, config, version_path, tokenizer))
    await application.start()
    return application


async def _made(config: ModelConfig, version_path: Path, tokenizer: str) -> AsgiApp | None:
    # On a thread, as it may import for a second.
    return await asyncio.to_thread(_first, config, version_path, tokenizer)


def _first(config: ModelConfig, version_path: Path, tokenizer: str) -> AsgiApp | None:
    found = named_tokenizer(config, version_path) or (Path(tokenizer) if tokenizer else None)
    for entry in announced(GROUP):
        make: MakeApplication = entry.load()
        application = make(config, found)
        if application is not None:
            return application
    _warn_of_tokenizer(
        config, "its tensors are neither those of a text model nor of a text encoder"
    )
    return None


def _has_application(config: ModelConfig, tokenizer: str) -> bool:
    """Whether one of the functions makes an application of this configuration."""
    makers: Iterable[MakeApplication] = (one.load() for one in announced(GROUP))
    with suppress(InferenceError):
        return any(make(config, Path(tokenizer) if tokenizer else None) for make in makers)
    return False


def _warn_of_tokenizer(config: ModelConfig, why: str) -> None:
    if config.parameter(TOKENIZER) is not None:
        logger.warning(
            "model '%s': parameter '%s' is without effect: %s", config.name, TOKENIZER, why
        )


def named_tokenizer(config: ModelConfig, version_path: Path) -> Path | None:
    """The tokenizer that a configuration names, in the version's directory or the model's.

    `None` where it names none. Raises `ModelLoadError` for one that is in neither.
    """
    name = config.parameter(TOKENIZER)
    if name is None:
        return None
    for folder in (version_path, version_path.parent):
        if name and (folder / name).exists():
            return folder / name
    raise ModelLoadError(
        f"parameter '{TOKENIZER}': '{name}' is neither in {version_path} nor above it"
    )

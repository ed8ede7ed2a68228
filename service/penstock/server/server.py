"""`InferenceServer`: the facade that every frontend calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.access.gate import AccessGate
from penstock.core.access import AuditSink
from penstock.core.change_notifier import ChangeNotifier
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    UnavailableError,
    UnsupportedError,
)
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import ANY_VERSION, InferenceRequest, parse_version
from penstock.core.request_limits import MOST_ELEMENTS
from penstock.core.stream import ResponseStream
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.releases.alias_model import AliasModel
from penstock.models.releases.releases import Releases
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.repository.override import ModelOverride
from penstock.models.repository.repository import ModelRepository
from penstock.models.residency.known_model import KnownModel
from penstock.models.residency.residency import ModelResidency
from penstock.models.serving.answers import (
    EngineHistogram,
    Gauge,
    InstanceProcess,
    ModelMetadata,
    ModelStatistics,
)
from penstock.models.serving.catalog import VersionState, not_found
from penstock.models.serving.loaded_model import LoadedModel
from penstock.models.serving.served_model import FinishingModel, ServedModel
from penstock.scheduling.tokens.tenants import Tenants
from penstock.server.answers import (
    Engine,
    EngineControlled,
    ModelIndexEntry,
    ServerMetadata,
    alias_entry,
    model_index,
    model_statistics,
    unloaded,
)
from penstock.server.control_policy import ControlPolicy
from penstock.server.engine_answers import EngineNames, speaks, told_adapters, told_descriptions
from penstock.server.exit import ServerExit
from penstock.server.load_meter import LoadMeter
from penstock.server.log_control import LogControl, LogValues, checked
from penstock.shared_memory.message_pools import NO_POOLS, MessagePools
from penstock.shared_memory.registry import NO_REGIONS, Regions
from penstock.tracing.settings import Texts, TraceControl, trace_texts
from penstock.tracing.tracer import UNTRACED, Tracer

logger = logging.getLogger(__name__)


class InferenceServer:
    """All operations of a frontend, on frozen values; raises the core's errors.

    `regions` is the registry of clients' shared memory, from which frontends read tensors;
    `tenants` name the senders of requests, if the server has any. `control_policy` says which
    settings requests may change, and whether they may bring files of models; a frontend adds what
    its restrictions admit.
    """

    regions: Regions = NO_REGIONS
    messages: MessagePools = NO_POOLS
    tracer: Tracer = UNTRACED
    tenants: Tenants | None = None
    access: AccessGate | None = None
    """Whom frontends ask who may call; they then see the server as `SeenModels`."""

    control_policy: ControlPolicy = ControlPolicy()

    residency: ModelResidency | None = None
    """What loads models when they are called; `None` where no call loads any."""

    has_repository = True
    """Without its repository a server serves nothing, and is neither live nor ready."""

    remote: RemoteRepositories | None = None
    """The repositories in object stores, which may not answer; loads ask them."""

    most_elements = MOST_ELEMENTS
    """The most elements of a BYTES tensor from the network."""

    _explicit_control = False

    def __init__(
        self,
        identity: ServerMetadata,
        repository: ModelRepository,
        lifecycle: ModelLifecycle,
        *,
        explicit_control: bool = False,
        engine_control: bool = False,
        strict_readiness: bool = True,
        trace: TraceControl | None = None,
        log: LogControl | None = None,
        regions: Regions = NO_REGIONS,
        tracer: Tracer | None = None,
        tenants: Tenants | None = None,
        control_policy: ControlPolicy | None = None,
        most_elements: int = MOST_ELEMENTS,
        alias_folders: Iterable[Path] = (),
    ) -> None:
        self.regions = regions
        self.most_elements = most_elements
        self.tenants = tenants
        self.control_policy = control_policy or ControlPolicy()
        self.messages = MessagePools(lifecycle.catalog.readers_of, lifecycle.catalog.changes)
        self._identity = identity
        self.repository = repository
        self._lifecycle = lifecycle
        self._catalog = lifecycle.catalog
        self._explicit_control = explicit_control
        self._engine_control = engine_control
        self._strict_readiness = strict_readiness
        self._trace = trace or TraceControl()
        propagates = self._trace.start.mode == "opentelemetry"
        self.tracer = tracer or Tracer(self._trace, propagates=propagates)
        self.load_meter = LoadMeter(self.snapshot, self.gauges)
        self._log = log
        self._exit = ServerExit(lifecycle)
        self._started = False
        self._engines = EngineNames(self.changes)
        self.releases = Releases(self._catalog, self._target, alias_folders)

    @property
    def audit(self) -> AuditSink | None:
        """The audit log: of models that were asked for by those who do not see them, and of what
        the server does to models by itself.
        """
        return self._lifecycle.audit

    @audit.setter
    def audit(self, audit: AuditSink | None) -> None:
        self._lifecycle.audit = self.releases.audit = audit

    # -- inference ----------------------------------------------------------------------------

    def find(self, name: str, version: str) -> ServedModel:
        """The model version that serves requests for this name and version.

        While the server exits, only requests that continue a sequence are admitted (S-22).
        """
        if self._started and not self._exit.begun:
            number = parse_version(version) if version else ANY_VERSION
            try:
                return self._catalog.find(name, number)
            except InferenceError as missed:
                return self.on_demand(name, number, missed)
        if self._exit.admits(name):
            return FinishingModel(self._catalog.find(name, parse_version(version)))
        raise self._refusal()

    def on_demand(self, name: str, version: int, missed: InferenceError) -> ServedModel:
        """What a name means that no loaded model has: an alias, or a model that its call loads.

        Raises what was `missed` where it is neither.
        """
        if version == ANY_VERSION and (alias := self._alias(name)) is not None:
            return alias
        return self._standby(name, version, missed)

    def _target(self, name: str, version: int) -> ServedModel:
        """A target of an alias."""
        try:
            return self._catalog.find(name, version)
        except InferenceError as missed:
            return self._standby(name, version, missed)

    def _standby(self, name: str, version: int, missed: InferenceError) -> ServedModel:
        """A model that is not loaded, whose answers wait for the load; else raises `missed`."""
        residency = self.residency
        standby = None if residency is None else residency.standby(name, version)
        if standby is None:
            raise missed
        return standby

    def infer(self, request: InferenceRequest) -> ResponseStream:
        """Admit a request; returns the stream of its responses, which the caller closes."""
        return self.find(request.model_name, request.model_version).infer(request)

    def cancel(self, request_id: str, tenant: str | None = None) -> int:
        """Cancel the requests in flight with this `id` or `call_id`; how many there were.

        With a `tenant`, only that tenant's. Their clients are told that they were cancelled.
        """
        return self._lifecycle.running.cancel(request_id, tenant)

    # -- health -------------------------------------------------------------------------------

    async def live(self) -> bool:
        """Liveness (G-01); raises while the server exits."""
        self._refuse_when_exiting()
        return self.has_repository

    async def ready(self) -> bool:
        """Readiness; with strict readiness, all models must be ready too (W-03).

        Those of a repository that could not be read are not.
        """
        self._refuse_when_exiting()
        if not self._started:
            return False
        if not self._strict_readiness:
            return True
        return await self._all_ready()

    @property
    def exiting(self) -> bool:
        """Whether the server refuses new work."""
        return self._exit.begun

    @property
    def changes(self) -> ChangeNotifier:
        """Notifies of changes that may affect readiness."""
        return self._catalog.changes

    def backends(self) -> Mapping[str, str]:
        """The backends that models have used so far: name to file."""
        return self._lifecycle.backends()

    def model_names(self) -> Sequence[str]:
        """Every model ever loaded or attempted, and every alias."""
        aliases = [alias.name for alias in self.releases.aliases()]
        return sorted({*self._catalog.names(), *aliases}) if aliases else self._catalog.names()

    async def model_ready(self, name: str, version: str) -> bool:
        """Whether the model version is ready; false for an unknown one, or at the start."""
        return await self.model_serves(name, version) and self._started

    def resident(self, name: str) -> bool | None:
        """Whether a model is loaded, where calls load models; `None` where it need not be told.

        An alias is as loaded as the model that its views tell of.
        """
        if self.residency is None:
            return None
        try:
            return bool(self._catalog.served(self._behind(name, "")[0]))
        except InferenceError:  # an alias of which no target serves
            return False

    async def model_serves(self, name: str, version: str) -> bool:
        """Whether other models may call the model version, also while the server starts."""
        name, version = self._behind(name, version)
        number = parse_version(version)
        try:
            model = self._catalog.find(name, number)
        except InferenceError:
            return self.residency is not None and self.residency.loadable(name, number)
        return await model.ready()

    async def _all_ready(self) -> bool:
        complete = self._catalog.complete() and not self.repository.missing
        if self.residency is None and not complete:
            return False
        return all(await asyncio.gather(*(model.ready() for model in self._catalog.models())))

    # -- metadata -----------------------------------------------------------------------------

    async def metadata(self) -> ServerMetadata:
        """Name, version and protocol extensions of the server."""
        return self._identity

    async def model_metadata(self, name: str, version: str) -> ModelMetadata:
        """Metadata of a model version, with all versions served unless one is named."""
        named, (name, version) = name, self._behind(name, version)
        if (known := self._unloaded(name)) is not None and not version:
            return replace(known.metadata(), name=named)
        model = await self._resident(name, version)
        versions = [model.version] if version else self._catalog.served(name)
        return replace(model.metadata(versions), name=named)

    async def model_config(self, name: str, version: str) -> ModelConfig:
        """The effective configuration of a model version."""
        name, version = self._behind(name, version)
        if (known := self._unloaded(name)) is not None and not version:
            return known.config
        return (await self._resident(name, version)).config

    async def statistics(self, name: str, version: str) -> tuple[ModelStatistics, ...]:
        """Counters of a version, of a model, or of all; without a name, `version` is ignored.

        Of an alias they are those of its targets, by their own names.
        """
        number = parse_version(version)
        if not name:
            return tuple(self.snapshot())
        alias = self._alias(name)
        targets = () if alias is None else alias.alias.targets
        names = dict.fromkeys(one.model for one in targets) or (name,)
        served = [model for one in names for model in self._catalog.served(one).values()]
        return model_statistics(name, served, number if version else None)

    def snapshot(self) -> Iterable[ModelStatistics]:
        """Counters of every model version that serves."""
        for model in self._catalog.models():
            yield model.snapshot

    def histograms(self) -> Iterable[EngineHistogram]:
        """Histograms that backends report about themselves, of every model that serves."""
        for model in self._catalog.models():
            yield from model.histograms()

    def gauges(self) -> Iterable[Gauge]:
        """Gauges that backends report about themselves."""
        for model in self._catalog.models():
            yield from model.gauges()

    def processes(self) -> Iterable[InstanceProcess]:
        """The model processes."""
        for model in self._catalog.models():
            yield from model.processes()

    # -- model repository ---------------------------------------------------------------------

    async def index(self, ready_only: bool = False) -> tuple[ModelIndexEntry, ...]:
        """Every model of the repositories with its versions; by name only if never loaded."""
        names, twice = await asyncio.to_thread(self.repository.names_and_duplicates)
        catalog = self._catalog
        entries = model_index(names, twice, catalog.names(), catalog.statuses(), catalog.failures)
        if (residency := self.residency) is not None:
            entries = [unloaded(entry, residency.why_unloaded(entry.name)) for entry in entries]
        entries += [alias_entry(alias) for alias in self.releases.aliases()]
        ready = VersionState.READY.value
        return tuple(entry for entry in entries if not ready_only or entry.state == ready)

    async def load(
        self, name: str, parameters: Mapping[str, str | bytes], *, trusted: bool = False
    ) -> None:
        """Load or reload a model, whose name is trimmed (explicit control only).

        Parameters are `config`, a configuration as JSON, and files by `file:<path>` (G-12), which
        the control policy must have let through if they come from a client. `versions`, such as
        `1,3`, are served beside those that are. Configurations name
        code only where they are `trusted`, or the policy lets all clients bring files.
        """
        self.check_model_control()
        trusted = trusted or self.control_policy.upload
        name, override = name.strip(), ModelOverride.from_parameters(parameters, trusted=trusted)
        if override is not None and override.versions:
            served = self._catalog.served(name).keys()
            override = replace(override, versions=override.versions | served)
        load = self._lifecycle.load if self.residency is None else self.residency.load
        for each in await asyncio.to_thread(self.repository.full_names, name):
            await load(each, override)

    async def unload(
        self, name: str, unload_dependents: bool = False, versions: Set[int] = frozenset()
    ) -> None:
        """Unload a model, its name trimmed, or only `versions` of it (explicit control only)."""
        self.check_model_control()
        for each in self._catalog.full_names(name.strip()):
            await self._unload(each, unload_dependents, versions)

    async def _unload(self, name: str, unload_dependents: bool, versions: Set[int]) -> None:
        served = self._catalog.served(name).keys()
        if left := (served - versions if versions else None):
            await self._lifecycle.load(name, ModelOverride(versions=frozenset(left)))
        elif not versions or served & versions:
            if self.residency is not None:
                self.residency.cancel(name)
            await self._lifecycle.unload(name, unload_dependents=unload_dependents)

    async def meant(self, name: str, unload_dependents: bool = False) -> set[str]:
        """The models that a load or unload of a name is of, which several repositories may have.

        With `unload_dependents` those with them that would be unloaded.
        """
        name = name.strip()
        found = {*await asyncio.to_thread(self.repository.full_names, name)}
        found.update(self._catalog.full_names(name))
        if unload_dependents:
            found.update(*(self._lifecycle.unneeded(each) for each in tuple(found)))
        return found

    def check_model_control(self) -> None:
        """Refuse what loads and unloads models, where requests may not."""
        self._refuse_when_exiting()
        if not self.has_repository:
            raise self._refusal()
        self._refuse_without_control()

    async def register_repository(self, path: str, names: Mapping[str, str] | None = None) -> None:
        """Read models from another folder too (explicit control only).

        `names` are those of models by their folders, where these differ.
        """
        self._refuse_without_control()
        await asyncio.to_thread(self.repository.add, path, names)

    async def unregister_repository(self, path: str) -> None:
        """Read a folder's models no more; those that are loaded serve on."""
        self._refuse_without_control()
        await asyncio.to_thread(self.repository.remove, path)

    @property
    def explicit_control(self) -> bool:
        """Whether models are loaded and unloaded by requests of clients."""
        return self._explicit_control

    async def adapters(self, name: str) -> list[str]:
        """The adapters that requests to a model may name; none where its engine has none.

        Of a model that a call loads they are known once it is loaded.
        """
        if self._waits_for_call(name):
            return []
        try:
            model = await self._resident(name, "")
        except InferenceError:
            return []
        return await told_adapters(model)

    async def speaks_openai(self, name: str) -> bool:
        """Whether a model that serves, or that a call loads, answers exchanges of OpenAI's API."""
        if self._waits_for_call(name):
            return self.residency is not None and await self.residency.speaks_openai(name)
        try:
            model = await self._resident(name, "")
        except InferenceError:
            return False
        return await speaks(model)

    async def openai_descriptions(self) -> Mapping[str, Mapping[str, Any]]:
        """The OpenAPI documents of the models' own applications, by model; of those with any."""
        return await told_descriptions(self._catalog.models())

    async def engine(self, name: str, *, load: bool = True) -> Engine | None:
        """A model as routers of engines see it; `None` for one that is not for them.

        Raises for a name that nobody has, and where the server does not serve; without `load` also
        for a model that a call would load.
        """
        behind, version = self._behind(name, "")
        if not load and self._waits_for_call(behind):
            raise UnavailableError(f"model '{name}' is not loaded")
        model = await self._resident(behind, version)
        facts = await model.engine_facts()
        return None if facts is None else Engine(name, facts, model)

    async def engines(self) -> Sequence[str]:
        """The models that serve and that routers of engines may use, by name.

        Once all have told, nobody is asked until models change.
        """
        return await self._engines.names(self._catalog.models())

    async def follow(self, changed: Iterable[str], gone: Iterable[str]) -> None:
        """Load changed models and unload removed ones; errors go to the log (M-03)."""
        if self.residency is not None:
            changed, gone = [*changed], [*gone]
            await self.residency.learn(changed)
            changed = [name for name in changed if self._catalog.served(name)]
            for name in gone:
                self.residency.forget(name)
        await self._lifecycle.load_all(changed, "polling")
        for name in gone:
            await self._lifecycle.unload(name, cause="polling")

    async def control(
        self, name: str, version: str, action: str, arguments: Mapping[str, Any]
    ) -> EngineControlled:
        """Have every instance of a model version carry out a command of an operator."""
        model = self.check_engine_control(name, version)
        instances = await model.control(action, arguments)
        self.changes.notify()  # an engine may be asleep now
        logger.info("model '%s' version %s: '%s' is done", name, model.version, action)
        return EngineControlled(name, str(model.version), instances)

    def check_engine_control(self, name: str, version: str) -> LoadedModel:
        """The model version that a command is for; raises where requests may give none."""
        self.check_commands()
        return self._find(name, version)

    def check_commands(self) -> None:
        """Refuse commands to engines, where requests may give none."""
        if not self._engine_control:
            raise UnsupportedError(
                "engines are not controlled by requests; --allow-engine-control=true allows it"
            )

    # -- settings -----------------------------------------------------------------------------

    def unknown_model(self, name: str, version: str) -> InferenceError:
        """The error for a name that no model has; raises what comes before, as a look-up would."""
        if self.exiting or not self._started:
            return self._refusal()
        parse_version(version)
        return not_found(name)

    async def trace_settings(self, model: str = "", changes: Texts | None = None) -> Texts:
        """The trace settings of a model or of all, after `changes`, if any (G-20)."""
        if model and not await self.model_ready(model, ""):
            raise untraced_model(model)
        if changes:
            self._trace.change(changes, model)
        texts = trace_texts(self._trace.current(model))
        if changes:
            logger.info("trace settings of %s: %s", model or "all models", texts)
        return texts

    async def log_settings(self, changes: LogValues | None = None) -> LogValues:
        """The log settings, after `changes`, if any (G-21)."""
        if self._log is None:
            raise UnsupportedError("log settings are not available on this server")
        if changes:
            self._log.change(checked(changes))
        return self._log.current()

    # -- start and end ------------------------------------------------------------------------

    async def start(self, names: Iterable[str]) -> Mapping[str, InferenceError]:
        """Load models, then serve; returns the errors of models that failed, by name."""
        if not self.has_repository:
            return {}
        if self.residency is not None:
            await self.residency.learn()
            names = {*names, *self.residency.always()}
        failures = await self._lifecycle.load_all(names, "start")
        if self.residency is not None:
            self.residency.counts.loads.update((n, "start") for n in names if n not in failures)
        await self.releases.read_files()
        self._started = True
        self.changes.notify()
        return failures

    async def wait_stopping(self) -> None:
        """Wait until the server refuses all new work."""
        await self._exit.all_refused.wait()

    def refuse_new_work(self, deadline: ExitDeadline) -> None:
        """Refuse new work before the stop, except requests that continue a sequence."""
        if self.remote is not None:
            self.remote.stop()
        self._exit.begin(deadline)
        if self.residency is not None:
            self.residency.stop_loading()

    async def finish_sequences(self, deadline: ExitDeadline) -> None:
        """Wait for sequences in progress to end, until the deadline (S-22)."""
        await self._exit.finish_sequences(deadline)

    async def stop(self, deadline: ExitDeadline) -> bool:
        """Refuse new work, complete what is in flight until the deadline, unload all models.

        Returns false if the deadline expired; threads may then still be running.
        """
        return await self._exit.complete(deadline)

    def _find(self, name: str, version: str) -> LoadedModel:
        """The model version that views describe."""
        if self.exiting or not self._started:
            raise self._refusal()
        return self._catalog.find(name, parse_version(version))

    async def _resident(self, name: str, version: str) -> LoadedModel:
        """The model version that views describe, which is loaded for them where a call would."""
        name, version = self._behind(name, version)
        residency = self.residency
        if residency is None or self._catalog.served(name) or residency.known(name) is None:
            return self._find(name, version)
        if self.exiting or not self._started:
            raise self._refusal()
        return await residency.bring(name, parse_version(version))

    def _behind(self, name: str, version: str) -> tuple[str, str]:
        """The model and the version that views of an alias tell of; of others what they name."""
        alias = None if version else self._alias(name)
        if alias is None:
            return name, version
        target = alias.main()
        return target.model, "" if target.version == ANY_VERSION else str(target.version)

    def _alias(self, name: str) -> AliasModel | None:
        """The alias of this name, unless a model has it that serves, or that a call loads."""
        residency = self.residency
        if self._catalog.served(name) or (residency is not None and residency.known(name)):
            return None
        return self.releases.find(name)

    def _unloaded(self, name: str) -> KnownModel | None:
        """A model that is not loaded, if its configuration says all that views tell."""
        if self.residency is None or self.exiting or not self._started:
            return None
        known = None if self._catalog.served(name) else self.residency.known(name)
        return known if known is not None and known.complete else None

    def _waits_for_call(self, name: str) -> bool:
        """Whether a call would load a model, which is not loaded."""
        known = None if self.residency is None else self.residency.known(name)
        return known is not None and not self._catalog.served(name)

    def _refusal(self) -> UnavailableError:
        return UnavailableError("Server exiting" if self.exiting else "Server not ready")

    def _refuse_when_exiting(self) -> None:
        if self.exiting:
            raise self._refusal()

    def _refuse_without_control(self) -> None:
        if not self._explicit_control:
            raise UnavailableError(
                "explicit model load / unload is not allowed if polling is enabled"
            )


def untraced_model(name: str) -> InvalidRequestError:
    """The error for trace settings of a model that does not serve."""
    return InvalidRequestError(f"Request for unknown model : {name}")

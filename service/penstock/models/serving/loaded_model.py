"""`LoadedModel`: a version that serves: configuration, scheduler, instances and statistics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.core.application import DESCRIBE, SPEAKS
from penstock.core.call_chain import CallingInstance
from penstock.core.config import ModelConfig
from penstock.core.engine_facts import FACTS, EngineFacts
from penstock.core.errors import (
    InferenceError,
    RejectedError,
    UnavailableError,
    as_inference_error,
    no_commands,
    queue_full,
)
from penstock.core.http_exchange import WINDOW
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.inflight.deadlines import Deadlines
from penstock.inflight.inference import (
    BodyParts,
    ComputeTimes,
    Inference,
    RunningRequests,
    TracedResponses,
)
from penstock.inflight.statistics import Statistics
from penstock.models.config.gpus import only_gpu
from penstock.models.repository.override import ScratchFolder
from penstock.models.repository.version_files import Origin
from penstock.models.serving.admission import (
    Admission,
    CallCycleCheck,
    Classifier,
    request_reshape,
    response_reshape,
)
from penstock.models.serving.answers import (
    EngineHistogram,
    Gauge,
    InstanceProcess,
    ModelMetadata,
    ModelStatistics,
    model_metadata,
)
from penstock.models.serving.instance import (
    ModelInstance,
    histograms_together,
    metrics_together,
)
from penstock.models.serving.server_application import ServerApplication
from penstock.models.sizing.budget import Claim
from penstock.scheduling import Resizable, Scheduler, SequenceScheduler
from penstock.scheduling.tokens.tenant_accounts import TenantAccounts

logger = logging.getLogger(__name__)

PLACES = "penstock_llm_max_running_requests"
"""The metric by which an engine says how many requests it runs at once."""

NO_NEW_REQUESTS = (
    "Server is stopping, scheduler for model has stopped accepting new inference requests"
)
"""Triton's message (W-08)."""


@dataclass(frozen=True, slots=True)
class ModelParts:
    """What a version of a model is made of, beside its instances.

    `scheduler` takes the requests. Where it is a response cache, `batcher` is the scheduler behind
    it. `exchanges` takes exchanges over HTTP; without it, any instance does at once; `application`
    takes them where the model's backend has no application of its own. `labels` are class labels by
    output; `max_pending` limits the queue, 0 for no limit. `running` keeps the requests in flight
    by their ids, `folder` the files that came with a request to load it. `accounts` count what
    tenants ask of OpenAI's API of a model without queues of theirs; `queue_metrics` are those of
    its queues, or of the accounts. `claim` is what it has of the memory budget, if there is one.
    `takes_device_tensors`: other models may leave its inputs in device memory.
    """

    config: ModelConfig
    version: int
    scheduler: Scheduler
    statistics: Statistics
    labels: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    max_pending: int = 0
    folder: ScratchFolder | None = None
    origin: Origin | None = None
    batcher: Scheduler | None = None
    exchanges: Scheduler | None = None
    running: RunningRequests | None = None
    application: ServerApplication | None = None
    accounts: TenantAccounts | None = None
    queue_metrics: Callable[[], Mapping[str, float]] | None = None
    claim: Claim | None = None
    takes_device_tensors: bool = False


class LoadedModel:
    """One version of a model that serves: admits requests and owns the instances.

    `load_seconds` is set by its loader, once the model is there.
    """

    def __init__(self, parts: ModelParts, instances: Sequence[ModelInstance] = ()) -> None:
        self.load_seconds = 0.0
        self.config, self.origin = parts.config, parts.origin
        self.decoupled = parts.config.decoupled
        self.version = parts.version
        self._version = str(parts.version)
        self._readiness_log = ReadinessLog(parts.config.name, parts.version)
        self.statistics = parts.statistics
        self.takes_device_tensors = parts.takes_device_tensors
        self._use(instances)
        self._scheduler = parts.scheduler
        self._batcher = parts.batcher or parts.scheduler
        self._exchanges = parts.exchanges
        self._held: HeldRequests | None = None
        self._running = parts.running or RunningRequests()
        self._application = parts.application
        self._accounts, self._queue_metrics = parts.accounts, parts.queue_metrics
        self._speaks: bool | None = None  # until an instance has told
        self._cycle_check = CallCycleCheck(
            parts.config, self._callers, in_front=self._batcher is not parts.scheduler
        )
        self._admission = Admission(parts.config)
        self._to_model = request_reshape(parts.config)
        self.labels = parts.labels
        self._transforms = ResponseTransforms(
            parts.config, self.labels, counts=parts.statistics.follows_responses
        )
        self._max_pending = parts.max_pending
        self._deadlines = Deadlines()
        self._stopping = False
        self._described: Mapping[str, Any] = {}
        self._facts: EngineFacts | None = None
        self.knows_facts = False
        self.claim = parts.claim
        self._folder = parts.folder
        if parts.folder is not None:
            parts.folder.retain()
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    def _use(self, instances: Sequence[ModelInstance]) -> None:
        """Execute on these instances from now on; requests go to those that are not passive."""
        self.instances = instances
        self._active = [instance for instance in instances if not instance.passive]
        for instance in instances:
            instance.on_lost = self._abandon_if_lost

    def infer(
        self, request: InferenceRequest, within: ComputeTimes | None = None
    ) -> ResponseStream:
        """Admit a request and return the stream of its responses; raises when it is refused.

        Of a request that is part of another one, `within` gets the compute times.
        """
        scope = request.scope
        if scope.call_chain:
            self._cycle_check.check(request)
        rows = self._admission.check(request)
        self._check_serving()
        if self._to_model is not None:
            request = self._to_model(request)
        inference = Inference(request, rows, self.statistics, self._version, within)
        if scope.call_chain:
            inference.wait = self._cycle_check.wait(request)
        if self._transforms.always or request.classes or scope.timeline is not None:
            self._transforms.follow(inference, request)
        return self._scheduled(inference, self._scheduler.schedule)

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        """Admit an exchange over HTTP; returns the `ExchangePart`s of its answer."""
        self._check_serving()
        scope = request.scope
        if self._accounts is not None:
            self._accounts.follow(scope)
        inference = Inference(request, 1, self.statistics, self._version, window=WINDOW)
        scope.infer = partial(self._infer_part, inference)
        inference.on_usage = scope.report_usage
        if scope.timeline is not None:
            inference.record(scope.timeline, self.config.name)
        to_client = inference.counting_responses(None)
        if inference.timeline is not None:
            to_client = TracedResponses(inference.timeline, to_client)
        if to_client is not None:
            inference.stream.transform = BodyParts(to_client)
        exchanges = self._application or self._exchanges
        return self._scheduled(
            inference, self._run_exchange if exchanges is None else exchanges.schedule
        )

    def _infer_part(self, whole: Inference, request: InferenceRequest) -> ResponseStream:
        """Admit a request with which the model's application answers an exchange."""
        whole.by_parts = True
        return self.infer(request)

    def _run_exchange(self, inference: Inference) -> None:
        """Give an exchange to an instance, past the queue of requests with tensors."""
        instance = next((one for one in self._active if one.available), None)
        if instance is None:
            raise self._unavailable()
        instance.execute((inference,), _ignore)

    def _scheduled(
        self, inference: Inference, schedule: Callable[[Inference], None]
    ) -> ResponseStream:
        """The stream of an admitted request, once it is scheduled."""
        request = inference.request
        if request.scope.deadline is not None:
            inference.watch(self._deadlines)
        if request.id or request.scope.call_id:
            inference.keep_in(self._running)
        try:
            if 0 < self._max_pending < self.statistics.pending:
                raise RejectedError(queue_full(request.id))
            schedule(inference)
        except InferenceError as error:
            inference.refused(error)
            raise
        return inference.stream

    def _callers(self) -> Iterable[CallingInstance | None]:
        """Its instances in the wait-for graph; `None` for those that execute concurrently."""
        return [one.caller if one.serial else None for one in self._active]

    async def ready(self) -> bool:
        """Whether every instance reports that it can serve."""
        if self._stopping:
            return False
        if self._held is not None:
            return True
        instances = self.instances
        if len(instances) == 1:  # without a task: readiness is asked for often, of every model
            healthy = [await instances[0].healthy()]
        else:
            healthy = await asyncio.gather(*(instance.healthy() for instance in instances))
        self._readiness_log.update(instances, healthy)
        return all(healthy)

    async def control(self, action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Have every instance carry out a command; what each returned, by its name."""
        self._check_serving()
        return await control_all(self.instances, action, arguments)

    async def speaks(self) -> bool:
        """Whether it has an application, which answers exchanges."""
        if self._application is not None:
            return self._application.opened
        if self._speaks is None and self.instances:
            self._speaks = any((await self.control(SPEAKS, {})).values())
        return bool(self._speaks)

    async def description(self) -> Mapping[str, Any]:
        """The OpenAPI document of its application, as one instance has it; empty without one.

        It is asked for until there is one, and then the same object.
        """
        if not self._described:
            self._described = await self._read_description()
        return self._described

    async def _read_description(self) -> Mapping[str, Any]:
        if self._application is not None:
            return await self._application.description()
        documents = await self.control(DESCRIBE, {})
        return next((one for one in documents.values() if one), {})

    async def engine_facts(self) -> EngineFacts | None:
        """What routers of engines ask, of one instance; `None` for a model that is not for them.

        It is asked for until the instance itself knows it: an engine elsewhere may be away.
        """
        if not self.knows_facts:
            told = await self.control(FACTS, {}) if self.instances else {}
            facts = self._facts = next((EngineFacts(**one) for one in told.values() if one), None)
            self.knows_facts = facts is None or facts.context_length > 0
        return self._facts

    def gauges(self) -> Iterable[Gauge]:
        """Metrics that the instances report, summed by name; of shares the mean."""
        found = metrics_together(self.instances)
        if self._queue_metrics is not None:
            found = [*found, *self._queue_metrics().items()]
        return (Gauge(name, self.config.name, self._version, value) for name, value in found)

    def places(self) -> int:
        """How many requests its engines run at once; 0 where one of them does not report it."""
        found = [int(one.metrics().get(PLACES, 0)) for one in self._active]
        return sum(found) if found and all(found) else 0

    def histograms(self) -> Iterable[EngineHistogram]:
        """Histograms that the instances report, added up by name."""
        return (
            EngineHistogram(name, self.config.name, self._version, histogram)
            for name, histogram in histograms_together(self.instances)
        )

    def processes(self) -> Iterable[InstanceProcess]:
        """The processes of its instances; none for instances on threads of the server."""
        for one in self.instances:
            if (process := one.process) is not None:
                yield InstanceProcess(
                    self.config.name, self._version, one.name, process.pid, process.restarts
                )

    def metadata(self, versions: Iterable[int]) -> ModelMetadata:
        """Its tensors and platform, with the `versions` that are served."""
        return model_metadata(self.config, versions)

    def retain(self) -> None:
        """Count an ensemble that uses the model: it keeps serving until all have released it."""
        self._users += 1
        self._unused.clear()

    def release(self) -> None:
        """Release the model, once for each `retain`."""
        self._users -= 1
        if not self._users:
            self._unused.set()

    @property
    def busy(self) -> bool:
        """Whether a request, a sequence or an ensemble keeps it from being stopped at once."""
        live = self.sequences is not None and self.sequences.has_sequences
        return bool(self.statistics.in_flight or self._users or live)

    @property
    def resizable(self) -> bool:
        """Whether its instances can be added and removed while it serves."""
        return isinstance(self._batcher, Resizable)

    @property
    def sequences(self) -> SequenceScheduler | None:
        """The scheduler of its sequences; `None` without sequence batching."""
        return self._batcher if isinstance(self._batcher, SequenceScheduler) else None

    def resize(
        self, config: ModelConfig, origin: Origin, instances: Sequence[ModelInstance]
    ) -> None:
        """Replace the instances; the caller drains and stops those removed.

        Where all are passive, queued requests fail.
        """
        assert isinstance(self._batcher, Resizable)
        self.config, self.origin = config, origin
        self._use(instances)
        self._batcher.resize(self._active)
        if not self._active:
            self._scheduler.abandon(self._unavailable())

    def hold(self, on_request: Callable[[], None]) -> None:
        """Keep requests until `resume`, as its engine sleeps; the first one calls `on_request`."""
        self._held = HeldRequests(on_request, self._scheduler, self._exchanges)
        self._scheduler = self._held
        if self._exchanges is not None:
            self._exchanges = self._held

    def resume(self) -> None:
        """Schedule what was held, and what comes from now on."""
        held, self._held = self._held, None
        if held is not None:
            self._scheduler, self._exchanges = held.scheduler, held.exchanges
            held.release()

    def shrink(self) -> None:
        """Have every instance free its caches."""
        for instance in self.instances:
            instance.shrink()

    async def stop(self) -> None:
        """Refuse new requests, complete those in flight, stop the instances."""
        await self._unused.wait()
        self._stopping = True
        await self._quiet()
        self.resume()
        await self._scheduler.drain()
        await self._release()

    async def abort(self) -> None:
        """Fail queued requests and stop the instances now."""
        self._stopping = True
        self._scheduler.abandon(UnavailableError(f"model '{self.config.name}' is being unloaded"))
        await self._release()

    async def _release(self) -> None:
        """End the application, then stop every instance; then raise the first error."""
        results: list[BaseException | None] = []
        if self._application is not None:
            results += await _ended(self._application.close())
        results += await _ended(*(instance.stop() for instance in self.instances))
        folder, self._folder = self._folder, None
        if folder is not None:
            results += await _ended(folder.release())
        if self.claim is not None:
            self.claim.release()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _quiet(self) -> None:
        """Wait until no request is in flight."""
        idle = asyncio.Event()
        self.statistics.watch_idle(idle.set)
        await idle.wait()

    def _check_serving(self) -> None:
        if self._stopping:
            raise UnavailableError(NO_NEW_REQUESTS)
        for instance in self._active:  # per request; usually the first one is alive
            if instance.alive:
                return
        raise self._unavailable()

    @property
    def snapshot(self) -> ModelStatistics:
        """Its counters, with name and version."""
        return ModelStatistics(
            self.config.name,
            self._version,
            self.statistics,
            self.config.metric_tags,
            self.load_seconds,
            only_gpu(self.config),
            namespace=self.origin.namespace if self.origin else "",
        )

    @property
    def alive(self) -> bool:
        """Whether every instance is alive, passive ones included."""
        return not self.loss and all(instance.alive for instance in self.instances)

    @property
    def loss(self) -> str:
        """Why all instances are down for good; empty while one may recover."""
        lost = all(instance.lost for instance in self._active or self.instances)
        return self._unavailable().message if lost else ""

    def _abandon_if_lost(self) -> None:
        """Fail the queued requests once all instances are down for good."""
        if self.loss:
            self._scheduler.abandon(self._unavailable())

    def _unavailable(self) -> UnavailableError:
        if not self._active:
            return UnavailableError(f"all instances of model '{self.config.name}' are passive")
        instance = self._active[0]
        return UnavailableError(
            f"model '{self.config.name}', instance '{instance.name}': {instance.why_unavailable}"
        )


def _ignore() -> None:
    """An exchange occupies no instance."""


class HeldRequests:
    """The scheduler of a model whose engine sleeps: keeps requests until it is awake."""

    def __init__(
        self, on_request: Callable[[], None], scheduler: Scheduler, exchanges: Scheduler | None
    ) -> None:
        self.scheduler = scheduler
        self.exchanges = exchanges
        self._on_request = on_request
        self._held: list[Inference] = []

    def schedule(self, inference: Inference) -> None:
        """Keep a request; the first one is told."""
        self._held.append(inference)
        if len(self._held) == 1:
            self._on_request()

    def release(self) -> None:
        """Schedule what was kept, without what was cancelled meanwhile."""
        held, self._held = self._held, []
        for inference in held:
            if inference.abandoned:
                continue
            try:
                self.scheduler.schedule(inference)
            except InferenceError as error:
                inference.fail(error)

    def abandon(self, error: InferenceError) -> None:
        """Fail what was kept, and what the model has queued."""
        held, self._held = self._held, []
        for inference in held:
            inference.fail(error)
        self.scheduler.abandon(error)

    async def drain(self) -> None:
        """Wait until no execution runs."""
        await self.scheduler.drain()


class ResponseTransforms:
    """Gives requests the transforms of their responses, in this order: shapes as the client knows
    them, classes in place of scores, counters, the timeline of a traced request.

    `labels` are class labels by output; `counts` says whether responses are counted one by one.
    `always`: every request has some; else those that want classes, or are traced.
    """

    def __init__(
        self, config: ModelConfig, labels: Mapping[str, Sequence[bytes]], *, counts: bool
    ) -> None:
        self._model = config.name
        self._reshape = response_reshape(config)
        self._classifier = Classifier(config.max_batch_size > 0, labels)
        self._counts = counts
        self.always = counts or self._reshape is not None

    def follow(self, inference: Inference, request: InferenceRequest) -> None:
        """Let each response of `inference` pass what its client, the counters or a trace want."""
        to_client = self._reshape
        if request.classes:
            to_client = self._classifier.transform(request.classes, to_client)
        if request.scope.timeline is not None:
            inference.record(request.scope.timeline, self._model)
        if self._counts:
            to_client = inference.counting_responses(to_client)
        if inference.timeline is not None:
            to_client = TracedResponses(inference.timeline, to_client)
        inference.stream.transform = to_client


class ReadinessLog:
    """Logs each reason once, however often readiness is asked for, and the return of readiness."""

    def __init__(self, model: str, version: int) -> None:
        self._model = model
        self._version = version
        self._logged = ""

    def update(self, instances: Sequence[ModelInstance], healthy: Sequence[bool]) -> None:
        """Log a change, if the health of the instances now differs from the last call."""
        reason = "; ".join(
            f"instance '{instance.name}': {_reason(instance)}"
            for instance, is_healthy in zip(instances, healthy, strict=True)
            if not is_healthy
        )
        if reason == self._logged:
            return
        self._logged = reason
        text = f"model '{self._model}' version {self._version}"
        extra = {"model": self._model}
        if reason:
            logger.warning("%s is not ready: %s", text, reason, extra=extra)
        else:
            logger.info("%s is ready again", text, extra=extra)


def _reason(instance: ModelInstance) -> str:
    if instance.alive:
        return "it answers that it cannot serve, or does not answer"
    return instance.why_unavailable


async def _ended(*ends: Awaitable[None]) -> list[BaseException | None]:
    """What each ended with; compiled, a `gather` of one would have to be a tuple, and is a list."""
    return await asyncio.gather(*ends, return_exceptions=True)


async def control_all(
    instances: Sequence[ModelInstance], action: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Have every instance carry out a command; what each returned, by its name.

    Raises the first error once all have ended; with several instances it names that one.
    """
    if not instances:  # an ensemble
        raise no_commands(action)
    commands = (instance.control(action, arguments) for instance in instances)
    values = await asyncio.gather(*commands, return_exceptions=True)
    done: dict[str, Any] = {}
    for instance, value in zip(instances, values, strict=True):
        if isinstance(value, BaseException):
            error = as_inference_error(value)
            if len(instances) > 1:
                raise type(error)(f"instance '{instance.name}': {error.message}") from value
            raise error from value
        done[instance.name] = value
    return done

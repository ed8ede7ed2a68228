"""The backend interface: `Backend`, which runs instances of a model, and its context."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, get_args

from penstock.core.config import ModelConfig
from penstock.core.engine_facts import EngineFacts
from penstock.core.errors import InferenceError, ModelLoadError
from penstock.core.flow_control import WINDOW, Window
from penstock.core.http_exchange import AsgiApp
from penstock.core.placement import Placement
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

Result = TypeVar("Result")

Outcome = (
    InferenceResponse
    | ResponseStream
    | AsyncIterator[InferenceResponse]
    | Callable[[ResponseStream], None]
    | InferenceError
)
"""A backend's answer to one request: a response, a stream of them, or the reason why not.

An async generator is the plain way to stream: it is closed when the client leaves, so its
`finally` is where generation stops. A `ResponseStream` is for engines that push, and a function for
those that push into the client's own stream, with which it is called once, at once: it connects
itself to the stream, and what it raises ends that.
"""

Host = Literal["thread", "process"]

SHARED_TMPDIR = "PENSTOCK_SHARED_TMPDIR"
"""Environment variable of a process with a `private_tmp`: the folder for what is to outlast it."""

OTLP_ENDPOINT = "PENSTOCK_OTLP_TRACES_ENDPOINT"
"""Environment variable of a model process: the URL that the server sends spans to, if it does."""

OTLP_PROTOCOL = "PENSTOCK_OTLP_TRACES_PROTOCOL"
"""The protocol of it: `http/protobuf` or `grpc`."""


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """The context of an instance: its configuration, placement, and thread for blocking work."""

    name: str
    """Unique among the model's instances, such as `resnet_0_1`."""
    config: ModelConfig
    """As `complete_config` returned it, with the server's defaults filled in."""
    version: int
    version_path: Path
    """The version's directory, which holds the model's files."""
    run: Callable[..., Awaitable[Any]]
    """`await run(function, *arguments)` calls a blocking function on the instance's own thread.

    There is one such thread, so calls run in order; what the function raises, `await` raises."""
    kind: str = "KIND_CPU"
    """`KIND_CPU` or `KIND_GPU`, as the instance group says; the name of an `InstanceKind`."""
    device_id: int = 0
    """Number of the GPU, where `kind` is `KIND_GPU`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The `--backend-config` values for this backend, by name."""
    passive: bool = False
    """Whether the instance is loaded and then gets no requests."""
    host_policy: str = "cpu"
    """Name of the host policy, whose `placement` holds for the thread behind `run`."""
    placement: Placement = field(default_factory=Placement)
    """Cores and NUMA node of that thread; already applied."""
    profiles: tuple[str, ...] = ()
    """The instance group's `profile`."""
    secondary_devices: tuple[tuple[str, int], ...] = ()
    """The instance group's `secondary_devices`: kind and number of each."""
    infer: Callable[[InferenceRequest], ResponseStream] | None = None
    """Gives another model of the server a request, whose scope is `request.scope.part()` of the one
    that it helps to answer; raises what refuses it. For instances on a thread of a server."""

    @property
    def signature(self) -> Hashable:
        """Placement and kind; instances of a model with equal signatures are interchangeable."""
        return (
            self.kind,
            self.device_id,
            self.passive,
            self.host_policy,
            self.placement,
            self.profiles,
            self.secondary_devices,
        )

    @property
    def model_path(self) -> Path:
        """The model's directory, above its versions."""
        return self.version_path.parent


class Distribution(Protocol):
    """What a backend has observed, as `penstock.backend.Histogram` counts it."""

    def state(self) -> list[Any]:
        """All of it as plain values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Facts of a backend that the server must know before it makes an instance."""

    host: Host = "thread"
    """Host of instances: a `"thread"` of the server, or a `"process"` of their own.

    A thread is for backends whose work releases the GIL. The model's parameter `penstock.host`
    moves instances of a thread backend to processes; the reverse needs `threads`."""

    threads: bool = False
    """Whether instances of a process backend may live on threads where a model says so.

    Then `penstock.host` is `thread`, and the server's own Python has what the backend needs."""

    serial: bool = True
    """Whether an instance gets its next `execute` only after the last one has returned.

    `False` is for engines that batch by themselves. Streams that `execute` has returned may be
    running in either case."""

    batch_tensors: bool = False
    """Whether the backend computes `batch_input` and splits by `batch_output`.

    A configuration with either is refused for a backend that does not."""

    hints: frozenset[str] = frozenset()
    """Fields of the configuration by path, such as `optimization.graph`, that the backend reads.

    For fields that not all backends make use of; given to one that does not, they are logged as
    without effect. Besides these there are `optimization.execution_accelerators`,
    `optimization.priority`, `optimization.cuda`, `optimization.eager_batching`,
    `optimization.input_pinned_memory`, `optimization.output_pinned_memory`, `model_operations` and
    `instance_group.secondary_devices`; `cc_model_filenames` is refused by the others."""

    eager: bool = False
    """Whether `execute` may begin before it has a task, which saves making one.

    Only for an `execute` that needs no current task before its first wait; `asyncio.timeout` and
    `asyncio.TaskGroup` do. For instances on threads."""

    spare: bool = False
    """Whether a process may be started before there is a model for it, so that a load is quicker.

    For backends whose `process_main` imports what every model of theirs needs."""

    engine: str = ""
    """The module that the first model of the server imports, and that takes long, such as
    `onnxruntime`: where calls load models, it is imported before, unless there are to be no spare
    processes. For instances on threads."""

    takes_device_tensors: bool = False
    """Whether inputs may be in a device's memory, as another model of the process left them there.

    Such a `DeviceTensor` has a `device` that speaks DLPack; `numpy()` copies it to the host. Others
    get every input on the host."""

    reports_usage: bool = False
    """Whether the backend reports the tokens of requests that ask for it.

    For language models: it calls `request.scope.report_usage`, where that is set, when the first
    token was made, from time to time after it, and at the end. Limits in tokens and fairness
    between tenants (`penstock.max_queued_tokens`, `--tenants`) are for such backends. For
    instances in processes."""

    private_tmp: bool = False
    """Whether each process gets a temporary folder (`TMPDIR`) that is deleted when it ends.

    The folder for files that are to outlast it is then named by `SHARED_TMPDIR`. For instances in
    processes."""

    process_main: str = "penstock.hosting.worker.host:run"
    """The function that a process of an instance runs, as `module:function`.

    It gets three file descriptors as integers: the socket to the server, and the shared memory of
    inputs and of outputs. Not part of the stable interface: leave the default."""

    window: Window = WINDOW
    """Flow control: how far responses of one request go ahead of their reader.

    By default 16 responses or 64 KiB of tensors, whichever is reached first; then a generator is
    not resumed, and `ResponseStream.room` waits. A backend that merges responses for a slow reader
    asks for a smaller window. The model's parameter `penstock.response_window` overrides it. For
    instances in processes; on a thread the default holds."""

    def __post_init__(self) -> None:
        if self.host not in get_args(Host):
            raise TypeError(f"a backend's host is one of {get_args(Host)}, not {self.host!r}")


class Backend(ABC):
    """The code that runs one instance of one model version: a subclass for each kind of model.

    The server makes an object for each instance and awaits `initialize`, then `execute` for each
    batch, then `finalize`, all on one event loop, which must not be blocked: `InstanceContext.run`
    is for blocking work. Errors made from `InferenceError` reach clients with their code and
    text; any other exception becomes an `InternalError` of its class and text.

    What only some backends have stands in parts of its own, which a class mixes in: `Controllable`,
    `Inspectable`, `WithApplication`, `WithEngineFacts`, `WithInterpreter`, `WithMetrics`,
    `WithReadiness`, `WithVariants`.
    """

    traits: ClassVar[Traits] = Traits()
    """Facts that hold for all instances; a subclass says `traits = Traits(serial=False)`."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if not isinstance(cls.traits, Traits):
            raise TypeError(f"backend {cls.__name__}: write traits = Traits(...), not {cls.traits}")
        for one in fields(Traits):
            if hasattr(cls, one.name):
                raise TypeError(
                    f"backend {cls.__name__}: '{one.name}' is no attribute of a backend, but a"
                    f" field of its traits: traits = Traits({one.name}=...)"
                )
        for part in _PARTS:
            names = [name for name in vars(part) if name[0] != "_" and hasattr(cls, name)]
            if names and not issubclass(cls, part):
                bases = ", ".join(one.__name__ for one in (part, *cls.__bases__))
                raise TypeError(
                    f"backend {cls.__name__}: '{names[0]}' is only asked of a backend with the part"
                    f" {part.__name__}: class {cls.__name__}({bases})"
                )

    @classmethod
    def tells_tokens(cls, config: ModelConfig) -> bool:
        """Whether a model's tokens are reported, where that depends on its configuration.

        By default it is what `Traits.reports_usage` says. On a thread `request.scope.report_usage`
        is called on the event loop.
        """
        return cls.traits.reports_usage

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        """The configuration with what the model itself knows filled in.

        Called in the server for each version that is loaded, unless auto-completion is disabled
        (`--disable-auto-complete-config`), with what `config.pbtxt` says and the
        `--backend-config` values of this backend; the setting `python` is the interpreter of the
        model's processes, where that is not the server's. Blocking work belongs on a thread:
        `asyncio.to_thread`. Raise `ModelLoadError` or `ConfigError` to refuse the model.
        """
        return config

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        """Raise `ConfigError` for a complete configuration that this backend cannot serve."""

    @abstractmethod
    async def initialize(self, context: InstanceContext) -> None:
        """Load the model; raise to refuse it, best a `ModelLoadError` that names file and field."""

    @abstractmethod
    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        """Answer a batch: one outcome for each request, in order. Raising fails the whole batch.

        Tensors of a model that batches (`max_batch_size` above 0) have the batch dimension first,
        and a request may bring several rows: see `rows_of`. Without batching there is one request.
        An outcome that streams (an async generator, a `ResponseStream`) may go on after `execute`
        has returned, beside the next batch.
        """

    async def finalize(self) -> None:
        """Release what `initialize` took."""


class Controllable(ABC):
    """Part of a backend that takes commands of operators: `class MyBackend(Controllable, Backend)`.

    Without it, the server refuses commands to the model.
    """

    @abstractmethod
    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """Carry out an operator's command, such as `sleep`; returns values that JSON has.

        Called beside `execute`, and to its end also where the operator no longer waits. Names of
        actions and arguments are between the operator and the backend; the server allows commands
        only with `--allow-engine-control`. Raise `UnsupportedError` for an unknown action.
        """


class Inspectable:
    """Part of a backend that knows of a model what a look at its files shows, for `penstock check`.

    Without it, the check knows what the configuration says. Nothing here may import an engine or
    run the code of a model; a load calls the same rules where it opens the files.
    """

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        """Raise `ModelLoadError`, as the load would, for files that are missing or misnamed.

        `config` is complete where that could be had without the model; `settings` are the
        `--backend-config` values of this backend, with `auto-complete-config` as `false` where the
        server completes no configuration.
        """

    @classmethod
    def weight_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> Sequence[Path]:
        """The files of weights that the engine opens, whose headers the check reads: those of
        safetensors, and the XML files of OpenVINO.

        Raises as `check_files` does, where it is given the same.
        """
        return ()

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        """Whether `complete_config` needs neither the engine nor the model's code for this one."""
        return False

    @classmethod
    def completed_form(cls, config: ModelConfig) -> ModelConfig | None:
        """The configuration with tensors as `complete_config` may add them, for the rules that need
        some: it is refused if no batch size would mend that. `None` where declared tensors change.
        """
        return None

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        """How to install the engine, as a `BackendNotInstalledError` says it; empty if it is there.

        What cannot be known without an import, such as the engine of another Python, is there.
        """
        return ""


class WithApplication(ABC):
    """Part of a backend that answers OpenAI's API itself.

    Without it, the server does for models with text and ensembles, as far as their tensors go.
    """

    @classmethod
    def has_application(cls, config: ModelConfig) -> bool:
        """Whether a model with this configuration is answered for here; else the server does."""
        return True

    @abstractmethod
    async def openai_app(self) -> AsgiApp | None:
        """The ASGI application that answers requests to OpenAI's API for this model, if any.

        Called after `initialize`. It is called with whole bodies, learns of clients that leave by
        `http.disconnect`, and finds what the server knows of the request in its scope, in the
        extension `penstock`: see `penstock.core.http_exchange`. At `ASGI_DESCRIPTION` it may answer
        the server with its OpenAPI document, for `/openapi.json`. Raise an
        `InferenceError` where the model cannot have one: it is logged, told to clients, and the
        model serves tensors. Only a `ModelLoadError` that is not a `BackendNotInstalledError`
        refuses the model.
        """


class WithEngineFacts(ABC):
    """Part of a backend whose models take and give tokens, for routers (`--engine-rpc`).

    Without it, a model is none that routers of engines may use.
    """

    @abstractmethod
    def engine_facts(self) -> EngineFacts | None:
        """The facts of the loaded model; `None` for one that takes no tokens."""


class WithInterpreter(ABC):
    """Part of a backend that chooses the Python of its processes.

    Without it, that is what the backend setting `python` names, such as the one of an engine's own
    environment, or the server's own.
    """

    @classmethod
    @abstractmethod
    async def interpreter(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> str | None:
        """The Python that a process instance runs in; `None` for the server's own.

        Asked for each version that is loaded, before `complete_config`, and for each resize; for
        backends on threads as well. `settings` are the `--backend-config` values of this backend.
        """


class WithMetrics:
    """Part of a backend that shows numbers of its engine: a subclass overrides either or both."""

    def metrics(self) -> Mapping[str, float]:
        """The engine's numbers by metric name, for the metrics endpoint.

        A name that ends with `_total` is shown as a counter, any other as a gauge; numbers of a
        model's instances are added up, but of those that end with `_usage` or `_info` the mean is
        shown. A name may have labels: `jobs{kind="short"}` (`series_name` writes it).
        """
        return {}

    def histograms(self) -> Mapping[str, Distribution]:
        """The engine's histograms by metric name: `penstock.backend.Histogram`.

        Those of a model's instances are added up; their bounds must not change.
        """
        return {}


class WithReadiness:
    """Part of a backend that may fail or rest while it is loaded: a subclass overrides what it has.

    Without it, an instance is healthy and ready from its start to its end.
    """

    unload_unhealthy: bool = False
    """Whether the model is unloaded once the instance is not healthy, where it is else restarted.

    May be set by `initialize`. For instances in processes."""

    async def healthy(self) -> bool:
        """Whether the instance can serve.

        Asked with each readiness request of a client, and twice a second in a process, where
        `False` ends the process and starts a new one: so it should only look at what is known.
        """
        return True

    def unready(self) -> str:
        """Why the instance should get no requests now, though it is healthy; empty if it should.

        For readiness only: such as an engine that sleeps.
        """
        return ""


class WithVariants(ABC):
    """Part of a backend that has several classes, such as one for each engine that may be there.

    Without it, the class that the package announces runs all of its models.
    """

    @classmethod
    @abstractmethod
    def variant(cls, settings: Mapping[str, str]) -> type[Backend]:
        """The class that runs the models: this one, or another.

        Asked for each model that is loaded, on a thread of the server; `settings` are the
        `--backend-config` values of this backend. It may look for what is installed.
        """


_PARTS = (
    Controllable,
    Inspectable,
    WithApplication,
    WithEngineFacts,
    WithInterpreter,
    WithMetrics,
    WithReadiness,
    WithVariants,
)


GROUP = "penstock.backends"
"""The entry point group where distributions announce their backends."""


def package_missing(package: str, settings: Mapping[str, str]) -> bool:
    """Whether an engine's package is not installed here; nothing is imported.

    Of the Python of another environment, which the setting `python` names, that is not known.
    """
    from importlib.util import find_spec

    return not settings.get("python") and find_spec(package) is None


def installed_backends() -> list[str]:
    """The names of all backends that can be found."""
    return sorted({entry.name for entry in announced(GROUP)})


def find_backend(name: str) -> type[Backend]:
    """The class that the entry point `name` announces; raises `ModelLoadError` for none."""
    found = announced(GROUP).select(name=name)
    if not found:
        known = installed_backends()
        raise ModelLoadError(
            f"unable to find backend '{name}'; installed backends: {', '.join(known) or 'none'}"
        )
    backend = next(iter(found)).load()
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise ModelLoadError(f"backend '{name}' is not a subclass of penstock.backend.Backend")
    return backend


def announced(group: str) -> EntryPoints:
    """The entry points of a group; those of distributions that were installed since count, too."""
    return _announced(group, tuple((path, _changed(path)) for path in sys.path))


@lru_cache(maxsize=16)
def _announced(group: str, _: tuple[tuple[str, int], ...]) -> EntryPoints:
    """The same, kept while nothing on the path changes: each load would read all metadata."""
    from importlib.metadata import entry_points  # model processes know this module, and find none

    return entry_points(group=group)


def _changed(path: str) -> int:
    """When something was installed in a folder last; 0 for none."""
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0

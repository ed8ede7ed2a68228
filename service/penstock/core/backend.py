"""The interface that runs models: what a backend must offer, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError, ModelLoadError
from penstock.core.flow_control import WINDOW, Window
from penstock.core.placement import Placement
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream

Result = TypeVar("Result")

Outcome = InferenceResponse | ResponseStream | AsyncIterator[InferenceResponse] | InferenceError
"""A backend's answer to one request: a response, a stream of them, or the reason why not.

An async generator is the plain way to stream: it is closed when the client leaves, so its
`finally` is where generation stops. A `ResponseStream` is for engines that push.
"""

Host = Literal["thread", "process"]

SHARED_TMPDIR = "PENSTOCK_SHARED_TMPDIR"
"""Environment variable of a process with a `private_tmp`: the folder for what is to outlast it."""


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """What one instance of a model is told about itself.

    `run` calls a blocking function on the instance's own single thread and awaits its result.
    `settings` are the `--backend-config` values for this backend. A `passive` instance gets no
    requests. `host_policy` names the `placement`, which holds for the thread behind `run`.
    `profiles` and `secondary_devices` (kind and number) are as the instance group has them.
    """

    name: str
    config: ModelConfig
    version: int
    version_path: Path
    run: Callable[..., Awaitable[Any]]
    kind: str = "KIND_CPU"
    device_id: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    passive: bool = False
    host_policy: str = "cpu"
    placement: Placement = field(default_factory=Placement)
    profiles: tuple[str, ...] = ()
    secondary_devices: tuple[tuple[str, int], ...] = ()

    @property
    def signature(self) -> Hashable:
        """What two instances of a model have in common that may stand in for each other."""
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


class Backend(ABC):
    """The code that runs one instance of one model version.

    `host` says where instances live unless the configuration's parameter `penstock.host` says
    otherwise: on a thread of the server (only for backends whose work releases the GIL) or in a
    process of their own. `serial` backends get one `execute` at a time; others, such as engines
    that batch by themselves, may be called again before the last call has returned. Only
    `batch_tensors` backends compute `batch_input` and split by `batch_output`. `process_main` is
    the function that serves such a process, as `module:function`. `window` is how far responses of
    one request go ahead of their reader; a backend that merges what a slow reader leaves asks for
    a small one. `eager` says that `execute` asks for no current task (as `asyncio.timeout` and
    `TaskGroup` do) before it first waits: then it begins at once, without a task of its own.
    `takes_device_tensors` says that inputs may be on a device, as one of the same process left
    them there; those that are of no use to it are copied by `Tensor.numpy()`. With `private_tmp`
    each process has a temporary folder of its own, which goes with it.
    """

    host: ClassVar[Host] = "thread"
    serial: ClassVar[bool] = True
    batch_tensors: ClassVar[bool] = False
    eager: ClassVar[bool] = False
    takes_device_tensors: ClassVar[bool] = False
    private_tmp: ClassVar[bool] = False
    process_main: ClassVar[str] = "penstock.hosting.worker.host:run"
    window: ClassVar[Window] = WINDOW

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        """Fill in what the model itself knows. Runs in the server.

        The setting `python` is then what `interpreter` has said, if anything.
        """
        return config

    @classmethod
    async def interpreter(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> str | None:
        """The Python that a process instance runs in; `None` for the server's own.

        The backend setting `python` names one, such as that of an engine's own environment.
        Asked once for each load, before `complete_config`, for backends on threads as well.
        """
        return settings.get("python")

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        """Refuse a complete configuration that this backend cannot serve."""

    @abstractmethod
    async def initialize(self, context: InstanceContext) -> None:
        """Load the model; raise to refuse."""

    @abstractmethod
    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        """Answer every request of the batch, in order. Raising fails the whole batch."""

    async def healthy(self) -> bool:
        """Whether the instance can serve; asked whenever readiness is."""
        return True

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the engine to be shown as gauges, by name; empty when there are none."""
        return {}

    async def finalize(self) -> None:
        """Release what `initialize` took."""


GROUP = "penstock.backends"
"""The entry point group where distributions announce their backends."""


def find_backend(name: str) -> type[Backend]:
    """The class that the entry point `name` announces; raises `ModelLoadError` for none."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = sorted({entry.name for entry in entry_points(group=GROUP)})
        raise ModelLoadError(
            f"unable to find backend '{name}'; installed backends: {', '.join(known) or 'none'}"
        )
    backend = next(iter(found)).load()
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise ModelLoadError(f"backend '{name}' is no subclass of penstock.core.backend.Backend")
    return backend

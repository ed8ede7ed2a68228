"""`Server`: an inference server inside this process, without a port."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from penstock.in_process.enums import MetricFormat
from penstock.in_process.errors import (
    InvalidArgumentError,
    UnavailableError,
    UnsupportedError,
    translated,
)
from penstock.in_process.model import Model
from penstock.in_process.options import Options, settings_of
from penstock.in_process.running_server import RunningServer
from penstock.in_process.views import server_view
from penstock.server.server import InferenceServer

Result = TypeVar("Result")
_UNLOADED = (None, "UNAVAILABLE")


class ModelDictionary(dict[Any, Model]):
    """Models by name and version; a name alone gives the model without a version."""

    def __init__(self, server: Server, models: Iterable[Model]) -> None:
        super().__init__({(model.name, model.version): model for model in models})
        self._server = server

    def __getitem__(self, key: Any) -> Model:
        if isinstance(key, tuple):
            found = self.get(key)
            if found is not None:
                return found
        elif any(name == key for name, _ in self):
            return Model(self._server, key)
        raise KeyError(f"Unknown Model: {key}")


class Server:
    """An inference server; options are given as an object, or by their names.

    It runs from `start` to `stop`, on a thread of its own; its methods are for any thread and wait.
    """

    def __init__(self, options: Options | None = None, **kwargs: Any) -> None:
        self.options = Options(**kwargs) if options is None else options
        self._running: RunningServer | None = None
        self._finalizer: weakref.finalize[..., Server] | None = None

    def __enter__(self) -> Server:
        return self if self._running else self.start(wait_until_ready=True)

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- start and stop -----------------------------------------------------------------------

    def start(
        self,
        wait_until_ready: bool = False,
        polling_interval: float = 0.1,
        timeout: float | None = None,
    ) -> Server:
        """Start, with the models of the start loaded; returns itself.

        Raises `InvalidArgumentError` for wrong options, or if it has started already;
        `UnavailableError` if it is not ready `timeout` seconds later; `InternalError`.
        """
        if self._running is not None:
            raise InvalidArgumentError("Server already started")
        running = self._running = RunningServer(settings_of(self.options))
        self._finalizer = weakref.finalize(self, running.finish)
        self._finalizer.atexit = False  # too late then: see `process_exit`
        end = None if timeout is None else time.monotonic() + timeout
        while wait_until_ready and not self.ready():
            if end is not None and time.monotonic() >= end:
                raise UnavailableError("Timeout before ready")
            time.sleep(polling_interval)
        return self

    def stop(self) -> None:
        """Complete what is in flight, up to the exit timeout, and unload all models."""
        running = self._started()
        self._running = None
        if self._finalizer is not None:
            self._finalizer.detach()
        running.stop()

    # -- views --------------------------------------------------------------------------------

    def live(self) -> bool:
        """Whether it runs."""
        return self._ask(lambda core: core.live())

    def ready(self) -> bool:
        """Whether it takes requests."""
        return self._ask(lambda core: core.ready())

    def metadata(self) -> dict[str, Any]:
        """Name, version and extensions."""
        return server_view(self._ask(lambda core: core.metadata()))

    def metrics(self, metric_format: MetricFormat = MetricFormat.PROMETHEUS) -> str:
        """The metrics page."""
        if metric_format != MetricFormat.PROMETHEUS:
            raise InvalidArgumentError("metrics are in the format of Prometheus only")
        running = self._started()
        if not running.settings.metrics.enabled:
            raise UnsupportedError("metrics not supported")
        return running.loop.run(running.metrics())

    # -- models -------------------------------------------------------------------------------

    def model(self, model_name: str, model_version: int = -1) -> Model:
        """A model, which need not be there before it is used."""
        return Model(self, model_name, model_version)

    def models(self, exclude_not_ready: bool = False) -> ModelDictionary:
        """The models of the repository, loaded or not."""
        entries = self._ask(lambda core: core.index(exclude_not_ready))
        return ModelDictionary(
            self,
            (
                Model(self, e.name, int(e.version or -1), e.state or None, e.reason or None)
                for e in entries
            ),
        )

    def load(
        self, model_name: str, parameters: Mapping[str, str | int | bool | bytes] | None = None
    ) -> Model:
        """Load a model, or load it anew: `config` is a configuration as JSON, `file:PATH` a file.

        Needs `ModelControlMode.EXPLICIT`.
        """
        given: dict[str, str | bytes] = {}
        for name, value in (parameters or {}).items():
            if not isinstance(value, str | bytes):
                raise InvalidArgumentError(f"parameter '{name}' must be a string or bytes")
            given[name] = value
        self._ask(lambda core: core.load(model_name, given, trusted=True))
        return self.model(model_name)

    def unload(
        self,
        model: str | Model,
        unload_dependents: bool = False,
        wait_until_unloaded: bool = False,
        polling_interval: float = 0.1,
        timeout: float | None = None,
    ) -> None:
        """Unload a model. Needs `ModelControlMode.EXPLICIT`."""
        name = model if isinstance(model, str) else model.name
        self._ask(lambda core: core.unload(name, unload_dependents))
        end = None if timeout is None else time.monotonic() + timeout
        while wait_until_unloaded and not self._unloaded(name):
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(polling_interval)

    def poll_model_repository(self) -> None:
        """Load and unload what has changed on disk. Needs `ModelControlMode.POLL`."""
        running = self._started()
        running.loop.run(running.poll())

    def register_model_repository(
        self, repository_path: str, name_mapping: Mapping[str, str] | None = None
    ) -> None:
        """Add a repository, whose models can then be loaded. Needs `ModelControlMode.EXPLICIT`.

        `name_mapping` has names of models by their folders, where these differ.
        """
        self._ask(lambda core: core.register_repository(repository_path, name_mapping))

    def unregister_model_repository(self, repository_path: str) -> None:
        """Remove a repository; models of it that are loaded serve on."""
        self._ask(lambda core: core.unregister_repository(repository_path))

    # -- within this package --------------------------------------------------------------------

    def _started(self) -> RunningServer:
        """The running server; raises `InvalidArgumentError` if it was not started."""
        if self._running is None:
            raise InvalidArgumentError("Server not started")
        return self._running

    def _ask(self, question: Callable[[InferenceServer], Coroutine[Any, Any, Result]]) -> Result:
        """Ask the core on its event loop, and wait for the answer."""
        running = self._started()
        with translated():
            return running.loop.run(question(running.core))

    def _unloaded(self, name: str) -> bool:
        return all(m.state in _UNLOADED for m in self.models().values() if m.name == name)

"""Reads models with OpenVINO, and compiles each once for all instances of a model."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from penstock.backend import BackendNotInstalledError, ModelConfig, ModelLoadError
from penstock_backends.openvino.model_graph import reason
from penstock_backends.openvino.settings import OpenVinoSettings


def read_model(config: ModelConfig, path: Path, settings: OpenVinoSettings) -> Any:
    """Read a file or folder of any format that OpenVINO knows; raises `ModelLoadError`."""
    core = _core()
    try:
        if settings.extension:
            core.add_extension(settings.extension)
        return core.read_model(str(path))
    except Exception as error:  # OpenVINO raises plain `RuntimeError`
        raise ModelLoadError(
            f"failed to load model '{config.name}': openvino error in reading model:"
            f" {reason(error)}"
        ) from error


def compile_model(config: ModelConfig, model: Any, settings: OpenVinoSettings) -> Any:
    """Compile what was read, for the settings' device; raises `ModelLoadError`."""
    core = _core()
    try:
        properties = dict(settings.properties)
        known = core.get_property(settings.device, "SUPPORTED_PROPERTIES")
        if settings.compilation_threads and "COMPILATION_NUM_THREADS" in known:
            properties["COMPILATION_NUM_THREADS"] = settings.compilation_threads
        return core.compile_model(model, settings.device, properties)
    except Exception as error:  # OpenVINO raises plain `RuntimeError`
        raise ModelLoadError(
            f"failed to load model '{config.name}': openvino error in loading model on"
            f" {settings.device}: {reason(error)}"
        ) from error


@cache
def _core() -> Any:
    try:
        from openvino import Core
    except ImportError as error:
        raise BackendNotInstalledError(
            "the openvino backend needs a package that is not installed; install it with: "
            "pip install 'penstock[openvino-runtime]'"
        ) from error
    return Core()


class SharedModel:
    """A compiled model, made for the first instance that asks and gone with the last."""

    _all: ClassVar[WeakValueDictionary[Hashable, SharedModel]] = WeakValueDictionary()
    _lock = Lock()

    def __init__(self, config: ModelConfig) -> None:
        self._config = config  # alive as long as its `id` is a key
        self._making = Lock()
        self._made: Any = None

    @classmethod
    def of(cls, config: ModelConfig, path: Path, place: str) -> SharedModel:
        """That of the instances of one load, on one host policy; another if the files are."""
        key = (id(config), path, place, _stamp(path))
        with cls._lock:
            found = cls._all.get(key)
            if found is None:
                found = cls._all[key] = cls(config)
            return found

    def get(self, make: Callable[[], Any]) -> Any:
        """The model that the first call has made; those beside it wait."""
        with self._making:
            if self._made is None:
                self._made = make()
            return self._made


def _stamp(path: Path) -> Hashable:
    """A stamp of the files of a model, which changes with them."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path, path.with_suffix(".bin")]
    found = [file.stat() for file in files if file.is_file()]
    return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)

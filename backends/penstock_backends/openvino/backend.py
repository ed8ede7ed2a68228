"""`OpenVinoBackend`: one compiled model for all instances, an `InferRequest` for each."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from penstock.backend import (
    BackendNotInstalledError,
    ConfigError,
    InstanceContext,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
    package_missing,
)
from penstock_backends.openvino.model_graph import Compiled, OpenVinoGraph, prepared, reason
from penstock_backends.openvino.settings import OpenVinoSettings
from penstock_backends.tensor_models import Graph, TensorModelBackend
from penstock_backends.tensor_models.shared_model import SharedModel

logger = logging.getLogger(__name__)

_NOT_INSTALLED = (
    "the openvino backend needs a package that is not installed; install it with: "
    "pip install 'penstock[openvino-runtime]'"
)
_CPU_KINDS = (InstanceKind.KIND_CPU, InstanceKind.KIND_AUTO)


class OpenVinoBackend(TensorModelBackend):
    """Runs what OpenVINO reads: IR, ONNX, TFLite, a SavedModel folder, a frozen GraphDef."""

    filename = "model.xml"

    @classmethod
    def settings(cls, config: ModelConfig, host_policy: str = "cpu") -> OpenVinoSettings:
        """How to compile the model; raises `ConfigError`."""
        return OpenVinoSettings.from_config(config, host_policy)

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> OpenVinoGraph:
        return OpenVinoGraph(read_model(config, path, cls.settings(config)))

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> OpenVinoGraph:
        config = context.config
        settings = cls.settings(config, context.host_policy)

        def make() -> tuple[OpenVinoGraph, Compiled]:
            model = read_model(config, path, settings)
            graph = prepared(model, config, settings)
            return graph, Compiled(model, lambda read: compile_model(config, read, settings))

        shared = SharedModel.of(config, path, context.host_policy)
        graph: OpenVinoGraph
        graph, compiled = shared.get(make)
        return graph.for_instance(compiled, shared)

    @classmethod
    def can_batch(cls, config: ModelConfig, graph: Graph) -> bool:
        """Whether the layouts of all tensors have a batch dimension, or the configuration one."""
        assert isinstance(graph, OpenVinoGraph)
        if config.max_batch_size and not graph.batches:
            logger.warning(
                "model '%s' has a max_batch_size, and no layout with a batch dimension for all of"
                " its tensors: their first dimension is taken for it",
                config.name,
            )
        return graph.batches or config.max_batch_size > 0

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        super().check_config(config)
        cls.settings(config)
        if any(group.kind not in _CPU_KINDS for group in config.instance_group):
            raise ConfigError(
                f"unable to load model '{config.name}', Triton OpenVINO backend supports only Kind"
                " CPU and AUTO"
            )

    @classmethod
    def weight_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> Sequence[Path]:
        path = cls.model_path(config, version_path)
        return [path] if path.suffix == ".xml" and path.is_file() else ()

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        return _NOT_INSTALLED if package_missing("openvino", {}) else ""


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
        raise BackendNotInstalledError(_NOT_INSTALLED) from error
    return Core()

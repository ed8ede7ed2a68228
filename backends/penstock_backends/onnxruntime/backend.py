"""`OnnxRuntimeBackend`: ONNX models, run on the threads of their instances."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock.backend import InstanceContext, ModelConfig, ModelLoadError, package_missing
from penstock_backends.onnxruntime.file_graph import FileGraph, UnknownFormError
from penstock_backends.onnxruntime.graph import OnnxGraph
from penstock_backends.onnxruntime.providers import Device, check_accelerators
from penstock_backends.onnxruntime.session import NOT_INSTALLED, open_graph, read_graph
from penstock_backends.onnxruntime.settings import SessionSettings
from penstock_backends.tensor_models import TensorModelBackend
from penstock_backends.tensor_models.shared_model import SharedModel

_FORMAT = "session.load_model_format"


class OnnxRuntimeBackend(TensorModelBackend):
    """Runs ONNX graphs on ONNX Runtime."""

    traits = replace(
        TensorModelBackend.traits,
        hints=frozenset(
            ("optimization.graph", "optimization.execution_accelerators", "model_operations")
        ),
        takes_device_tensors=True,
        engine="onnxruntime",
    )
    filename = "model.onnx"

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> OnnxGraph:
        return read_graph(config, path, settings)

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> OnnxGraph:
        config, device = context.config, Device(context.kind, context.device_id)
        policy = context.host_policy
        settings = SessionSettings.from_config(config, context.settings, policy, context.kind)

        def make() -> OnnxGraph:
            return open_graph(path, config, settings, device)

        if not settings.shared:
            return make()
        shared = SharedModel.of(config, path, (policy, device))
        graph: OnnxGraph = shared.get(make)
        return graph.for_instance(shared)

    @classmethod
    def model_path(cls, config: ModelConfig, version_path: Path) -> Path:
        """The file, or `model.onnx` in the folder of this name, with external data (R-13)."""
        path = super().model_path(config, version_path)
        path = path / cls.filename if path.is_dir() else path
        if not path.is_file():
            raise ModelLoadError(f"model '{config.name}': file {path} does not exist")
        return path

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        super().check_config(config)
        SessionSettings.from_config(config, {})

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        super().check_files(config, version_path, settings)
        SessionSettings.from_config(config, settings)
        check_accelerators(config)
        path = cls.model_path(config, version_path)
        if path.suffix != ".onnx" or config.parameter(_FORMAT) is not None:
            return
        with suppress(UnknownFormError):  # which ONNX Runtime may understand
            cls.check_graph(config, FileGraph(config, path), settings)

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        return NOT_INSTALLED if package_missing("onnxruntime", {}) else ""

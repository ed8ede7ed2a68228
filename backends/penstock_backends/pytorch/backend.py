"""`PyTorchBackend`: models on PyTorch, each instance in a process of its own (contract B-08)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from penstock.backend import (
    InstanceContext,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
    package_missing,
)
from penstock_backends.pytorch.naming import check_states
from penstock_backends.pytorch.program_file import check_program
from penstock_backends.pytorch.settings import NOT_INSTALLED, TorchSettings
from penstock_backends.tensor_models import Graph, SharedModel, TensorModelBackend
from penstock_backends.tensor_models.autocomplete import needs_completion

logger = logging.getLogger(__name__)

PYTHON_FILE = "model.py"
"""The file of a module in Python, and the runtime that asks for it (contract B-12)."""


class PyTorchBackend(TensorModelBackend):
    """Runs TorchScript, packages of torch.export and AOTInductor, and modules in Python.

    In a process, since PyTorch takes half a gigabyte, has switches that hold for a whole process,
    and holds Python's lock while a compiled package runs. On threads, where a model asks for them,
    tensors stay on the device from model to model.
    """

    traits = replace(
        TensorModelBackend.traits,
        host="process",
        threads=True,
        eager=False,
        takes_device_tensors=True,
    )
    filename = "model.pt"

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        if needs_completion(config):
            logger.warning(
                "skipping model configuration auto-complete for '%s': not supported for pytorch"
                " backend",
                config.name,
            )
        return config

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        return True

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        super().check_files(config, version_path, settings)
        chosen = TorchSettings.from_config(config, settings)
        check_program(config, cls.model_path(config, version_path), chosen)

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        return NOT_INSTALLED if package_missing("torch", settings) else ""

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        super().check_config(config)
        check_states(config)
        settings = TorchSettings.from_config(config, {})
        on_gpu = any(group.kind is InstanceKind.KIND_GPU for group in config.instance_group)
        if settings.shares_weights and on_gpu and not settings.on_threads:
            logger.warning(
                "model '%s': parameter 'ENABLE_WEIGHT_SHARING' has no effect on a GPU, as each"
                " instance is a process",
                config.name,
            )

    @classmethod
    def model_path(cls, config: ModelConfig, version_path: Path) -> Path:
        path = version_path / (config.default_model_filename or cls.filename)
        module = version_path / PYTHON_FILE
        in_python = config.runtime == PYTHON_FILE and path.suffix != module.suffix
        if (in_python or not path.exists()) and module.is_file():
            return module
        if not path.is_file():
            raise ModelLoadError(f"unable to find '{path}' for model instance '{config.name}'")
        return path

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> Graph:
        raise ModelLoadError("models of PyTorch are not completed")  # see `complete_config`

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> Graph:
        # Only the process of an instance has PyTorch.
        from penstock_backends.pytorch.graph import TorchGraph
        from penstock_backends.pytorch.program import load_program, prepare

        config = context.config
        settings = TorchSettings.from_config(config, context.settings, context.host_policy)
        device, shared = _device(context), None
        prepare(config, device, settings)
        if settings.shares_weights and settings.on_threads:
            shared = SharedModel.of(config, path, (context.host_policy, device))
            program = shared.get(lambda: load_program(config, path, device, settings))
        else:
            program = load_program(config, path, device, settings)
        return TorchGraph(config, program, device, settings, shared)


def _device(context: InstanceContext) -> str | None:
    """PyTorch's name of the instance's device; `None` where the model chooses itself (B-11)."""
    if context.kind == InstanceKind.KIND_MODEL:
        return None
    return f"cuda:{context.device_id}" if context.kind == InstanceKind.KIND_GPU else "cpu"

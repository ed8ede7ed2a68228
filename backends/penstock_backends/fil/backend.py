"""`FilBackend`: forests of decision trees, on the instance's own thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from penstock.backend import (
    ConfigError,
    InstanceContext,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
    package_missing,
)
from penstock_backends.fil.file_forest import read_file_forest
from penstock_backends.fil.forest import NOT_INSTALLED, CompiledTrees, Forest, read_forest
from penstock_backends.fil.settings import FilSettings, warn_of_removed
from penstock_backends.tensor_models import TensorModelBackend
from penstock_backends.tensor_models.shared_model import SharedModel


class FilBackend(TensorModelBackend):
    """Runs trees of XGBoost, LightGBM and treelite, with the names and parameters of Triton's."""

    @classmethod
    def model_path(cls, config: ModelConfig, version_path: Path) -> Path:
        named = config.default_model_filename or FilSettings.from_config(config).filename
        path = super().model_path(replace(config, default_model_filename=named), version_path)
        if not path.is_file():
            raise ModelLoadError(f"failed to load model '{config.name}': {path} is no file")
        return path

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> Forest:
        return read_forest(config, path, FilSettings.from_config(config))

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> Forest:
        config = context.config
        settings = FilSettings.from_config(config, context.host_policy)
        forest = read_forest(config, path, settings)
        if not settings.compiles:
            return forest
        shared = SharedModel.of(config, path, context.host_policy)
        library: CompiledTrees = shared.get(lambda: CompiledTrees(config))
        return forest.compiled(library, shared)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        super().check_config(config)
        FilSettings.from_config(config)
        warn_of_removed(config)
        if any(group.kind is InstanceKind.KIND_GPU for group in config.instance_group):
            raise ConfigError(
                f"model '{config.name}' has an instance group of KIND_GPU, but trees run on CPUs"
                " here; leave the kind out, or say KIND_CPU"
            )

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        super().check_files(config, version_path, settings)
        path = cls.model_path(config, version_path)
        forest = read_file_forest(config, path, FilSettings.from_config(config))
        if forest is not None:
            cls.check_graph(config, forest, settings)

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        return NOT_INSTALLED if package_missing("treelite", {}) else ""

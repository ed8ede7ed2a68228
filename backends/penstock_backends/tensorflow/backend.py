"""`TensorFlowBackend`: TensorFlow's models, on the engine that is there (contract B-15, AC-13)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from penstock.backend import (
    Backend,
    InstanceContext,
    ModelConfig,
    ModelLoadError,
    WithVariants,
)
from penstock_backends.tensor_models import Graph, TensorModelBackend
from penstock_backends.tensor_models.autocomplete import needs_completion
from penstock_backends.tensorflow.on_openvino import OpenVinoTensorFlowBackend
from penstock_backends.tensorflow.saved_model import SignatureGraph, signature_batches
from penstock_backends.tensorflow.settings import GRAPHDEF, TensorFlowSettings

logger = logging.getLogger(__name__)


class TensorFlowBackend(WithVariants, TensorModelBackend):
    """Runs SavedModel folders and frozen GraphDefs on TensorFlow, where that is to be had.

    In a process, since TensorFlow takes half a gigabyte, and its threads and memory are those of a
    whole process. Elsewhere OpenVINO reads the models, on threads of the server.
    """

    traits = replace(
        TensorModelBackend.traits,
        host="process",
        eager=False,
        hints=frozenset(("optimization.graph",)),
    )
    filename = "model.savedmodel"

    @classmethod
    def variant(cls, settings: Mapping[str, str]) -> type[Backend]:
        """TensorFlow where it is installed, or an environment is named that has it."""
        if settings.get("python") or find_spec("tensorflow") is not None:
            return cls
        return OpenVinoTensorFlowBackend

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> Graph:
        """The tensors of the signature, without TensorFlow."""
        graph = SignatureGraph(config, path, TensorFlowSettings.from_config(config, settings))
        if graph.unranked:
            raise ModelLoadError(
                f"unable to autofill for '{config.name}': the rank of model tensor"
                f" '{graph.unranked[0]}' is 0 which is not supported; declare the tensors in the"
                " configuration"
            )
        return graph

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        if config.platform == GRAPHDEF or not needs_completion(config):
            return config  # a GraphDef does not say which of its tensors are meant
        return await super().complete_config(config, version_path, settings)

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        super().check_files(config, version_path, settings)
        TensorFlowSettings.from_config(config, settings)

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        return True  # the signature is read without TensorFlow

    @classmethod
    def can_batch(cls, config: ModelConfig, graph: Graph) -> bool:
        return signature_batches(config, graph)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        super().check_config(config)
        TensorFlowSettings.from_config(config, {})
        if (config.parameter("MAX_SESSION_SHARE_COUNT") or "1") != "1":
            logger.warning(
                "model '%s': parameter 'MAX_SESSION_SHARE_COUNT' has no effect, as each instance is"
                " a process: one instance with TF_NUM_INTRA_THREADS holds its weights once",
                config.name,
            )

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> Graph:
        # Only the process of an instance has TensorFlow.
        from penstock_backends.tensorflow.graph import TensorFlowGraph

        config = context.config
        settings = TensorFlowSettings.from_config(config, context.settings, context.host_policy)
        return TensorFlowGraph(context, path, settings)

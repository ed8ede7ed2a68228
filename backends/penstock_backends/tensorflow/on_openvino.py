"""`OpenVinoTensorFlowBackend`: TensorFlow's models, read by OpenVINO (contract B-15, AC-13)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.backend import (
    BackendNotInstalledError,
    ConfigError,
    InstanceContext,
    ModelConfig,
    ModelLoadError,
)
from penstock_backends.openvino.backend import OpenVinoBackend
from penstock_backends.openvino.model_graph import OpenVinoGraph
from penstock_backends.openvino.settings import OpenVinoSettings
from penstock_backends.tensor_models import Graph
from penstock_backends.tensorflow.saved_model import signature_batches
from penstock_backends.tensorflow.settings import GRAPHDEF, SIGNATURE, TAG, number

_ONLY = {"TF_GRAPH_TAG": ("", TAG), "TF_SIGNATURE_DEF": ("", SIGNATURE)}
_WITH_TENSORFLOW = (
    "; models of TensorFlow are read by OpenVINO here, which takes the default signature, and"
    " neither strings nor all operators: for the rest, pip install tensorflow-cpu, beside the"
    " server or in an environment of its own whose Python"
    " --backend-config=tensorflow,python=/path/to/python names"
)


class OpenVinoTensorFlowBackend(OpenVinoBackend):
    """Runs SavedModel folders and frozen GraphDefs on OpenVINO, where TensorFlow is not there."""

    filename = "model.savedmodel"

    @classmethod
    def settings(cls, config: ModelConfig, host_policy: str = "cpu") -> OpenVinoSettings:
        found = super().settings(config, host_policy)
        number(config, "MAX_SESSION_SHARE_COUNT", 1)
        number(config, "TF_NUM_INTER_THREADS")  # operators run one after another
        threads = number(config, "TF_NUM_INTRA_THREADS")
        if not threads:
            return found
        named = {**found.properties, "INFERENCE_NUM_THREADS": str(threads)}
        return replace(found, properties=named)

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        if config.platform == GRAPHDEF:  # it does not say which of its tensors are meant
            return config
        return await super().complete_config(config, version_path, settings)

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> OpenVinoGraph:
        with _advised():
            return super().read(config, path, settings)

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> OpenVinoGraph:
        with _advised():
            return super().open(context, path)

    @classmethod
    def can_batch(cls, config: ModelConfig, graph: Graph) -> bool:
        return signature_batches(config, graph)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        super().check_config(config)
        for name, known in _ONLY.items():
            given = config.parameter(name) or ""
            if given not in known:
                raise ConfigError(
                    f"model '{config.name}': parameter '{name}' is '{given}', which cannot be"
                    f" chosen{_WITH_TENSORFLOW}"
                )
        if config.parameter("TF_INIT_OPS_FILE"):
            raise ConfigError(
                f"model '{config.name}': parameter 'TF_INIT_OPS_FILE' cannot be followed"
                f"{_WITH_TENSORFLOW}"
            )


@contextmanager
def _advised() -> Iterator[None]:
    """Errors of a model that OpenVINO does not read say what does."""
    try:
        yield
    except BackendNotInstalledError:
        raise
    except ModelLoadError as error:
        raise ModelLoadError(f"{error.message}{_WITH_TENSORFLOW}") from error

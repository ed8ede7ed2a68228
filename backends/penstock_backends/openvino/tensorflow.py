"""`TensorFlowBackend`: TensorFlow's models, read by OpenVINO (contract B-15, AC-13)."""

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
from penstock_backends.tensor_models.autocomplete import all_rows_vary

GRAPHDEF = "tensorflow_graphdef"

_ONLY = {"TF_GRAPH_TAG": ("", "serve"), "TF_SIGNATURE_DEF": ("", "serving_default")}
_WITH_TENSORFLOW = (
    "; models of TensorFlow are read by OpenVINO here, which takes the default signature, and"
    " neither strings nor all operators: for the rest, pip install tensorflow-cpu and load the"
    " model in a model.py of backend 'python'"
)


class TensorFlowBackend(OpenVinoBackend):
    """Runs SavedModel folders and frozen GraphDefs on OpenVINO."""

    filename = "model.savedmodel"

    @classmethod
    def settings(cls, config: ModelConfig, host_policy: str = "cpu") -> OpenVinoSettings:
        found = super().settings(config, host_policy)
        threads = _number(config, "TF_NUM_INTRA_THREADS")
        _number(config, "TF_NUM_INTER_THREADS")  # operators run one after another
        if not threads:
            return found
        return replace(found, properties={**found.properties, "INFERENCE_NUM_THREADS": threads})

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
        """Whether the first dimension of all tensors of the signature is variable."""
        batches = all_rows_vary(graph)
        if config.max_batch_size and not batches:
            raise ModelLoadError(
                f"unable to autofill for '{config.name}', configuration specified max-batch "
                f"{config.max_batch_size} but model signature does not support batching"
            )
        return batches

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


def _number(config: ModelConfig, name: str) -> str:
    text = config.parameter(name) or ""
    if text and not text.isdecimal():
        raise ConfigError(f"parameter '{name}' must be a whole number, not '{text}'")
    return text

"""The entries of a configuration's `parameters` that are Penstock's own: all begin `penstock.`.

This is the only list of them, beside the pins of files (`models/config/pins.py`). Any other name
that begins so is refused at load: a mistyped one would be ignored without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from penstock.core.nearest_name import suggestion
from penstock.models.config.pins import SHA256

PREFIX = "penstock."

READERS: Mapping[str, str] = MappingProxyType(
    {
        "penstock.adapter_folders": "penstock_backends.vllm",
        "penstock.allowed_media_hosts": "penstock_backends.language_model",
        "penstock.audio": "penstock_backends.tensor_models",
        "penstock.compile_trees": "penstock_backends.fil",
        "penstock.engine_cores": "penstock.models.loading",
        "penstock.execution_timeout_seconds": "penstock.models.loading",
        "penstock.gather_percent": "penstock.scheduling.batching",
        "penstock.hang_seconds": "penstock.models.loading",
        "penstock.host": "penstock.models.loading",
        "penstock.idle_seconds": "penstock.models.residency",
        "penstock.image": "penstock_backends.tensor_models",
        "penstock.length_buckets": "penstock.scheduling.batching",
        "penstock.matryoshka": "penstock_backends.openai_kit",
        "penstock.max_batch_elements": "penstock.scheduling.batching",
        "penstock.max_queued_requests": "penstock.scheduling.tokens",
        "penstock.max_queued_tokens": "penstock.scheduling.tokens",
        "penstock.max_text_characters": "penstock_backends.tensor_models",
        "penstock.max_texts": "penstock_backends.tensor_models",
        "penstock.max_tokens": "penstock_backends.tensor_models",
        "penstock.memory_limit_bytes": "penstock.models.loading",
        "penstock.min_resident_seconds": "penstock.models.residency",
        "penstock.normalize": "penstock_backends.tensor_models",
        "penstock.openai_tokenizer": "penstock.models.loading",
        "penstock.optimized_model_cache": "penstock_backends.onnxruntime",
        "penstock.padded_outputs": "penstock_backends.tensor_models",
        "penstock.padding": "penstock_backends.tensor_models",
        "penstock.pooling": "penstock_backends.tensor_models",
        "penstock.private_tmp": "penstock.models.loading",
        "penstock.profile": "penstock_backends.onnxruntime",
        "penstock.residency": "penstock.models.residency",
        "penstock.rest_seconds": "penstock.models.residency",
        "penstock.side_effects": "penstock.models.releases",
        "penstock.sleep_level": "penstock.models.residency",
        "penstock.response_statistics": "penstock.models.loading",
        "penstock.response_window": "penstock.models.loading",
        "penstock.restart_hung": "penstock.models.loading",
        "penstock.stream_interval_ms": "penstock_backends.language_model",
        "penstock.tokenizer": "penstock_backends.tensor_models",
    }
)
"""Each name, and the package that reads it."""


def unknown_parameter(name: str) -> str:
    """Why an entry of `parameters` is refused; empty for one that may stand."""
    if not name.startswith(PREFIX) or name in READERS or name.startswith(SHA256):
        return ""
    if name == SHA256.removesuffix(":"):
        return f"'{name}' is written for each file: '{SHA256}1/model.onnx'"
    hint = suggestion(name.removeprefix(PREFIX), _SHORT, 0.5, PREFIX)
    return f"'{name}' is not a parameter that Penstock knows{hint}"


_SHORT = tuple(name.removeprefix(PREFIX) for name in READERS)

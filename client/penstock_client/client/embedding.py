"""Embedding of texts: which tensors of a model the texts go into and the vectors come from."""

from __future__ import annotations

from penstock_client.client.errors import InvalidArgumentError
from penstock_client.client.views import ModelMetadata, TensorMetadata


def tensor_names(metadata: ModelMetadata) -> tuple[str, str]:
    """The input for texts and the output of vectors; raises `InvalidArgumentError`."""
    texts = [tensor for tensor in metadata.inputs if tensor.datatype == "BYTES"]
    vectors = [tensor for tensor in metadata.outputs if tensor.datatype.startswith(("FP", "BF"))]
    if len(texts) != 1 or not vectors:
        raise InvalidArgumentError(
            f"model '{metadata.name}' does not embed texts: that takes one input of strings and an"
            " output of floating-point numbers; use `infer` for it"
        )
    return texts[0].name, _best(vectors).name


def _best(vectors: list[TensorMetadata]) -> TensorMetadata:
    return next((tensor for tensor in vectors if "embed" in tensor.name.lower()), vectors[0])

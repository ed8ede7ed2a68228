"""Class labels that an ensemble takes over from the models of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.config.scheduling import EnsembleStep
from penstock.models.serving.loaded_model import LoadedModel


def labels_of_steps(
    steps: Sequence[EnsembleStep], models: Sequence[LoadedModel]
) -> Mapping[str, Sequence[bytes]]:
    """The labels of the tensors that steps make; `models` are theirs, one for each."""
    return {
        tensor: model.labels[output]
        for step, model in zip(steps, models, strict=True)
        for output, tensor in step.output_map.items()
        if output in model.labels
    }

"""The labels of a model's metrics."""

from __future__ import annotations

from penstock.models.serving.answers import ModelStatistics

Label = tuple[str, str]


def model_labels(model: ModelStatistics, *more: Label) -> tuple[Label, ...]:
    """Tags of the configuration (C-31), GPU, model, `more`, and version, sorted by name."""
    labels = (("model", model.name), *more, ("version", model.version))
    if model.gpu_uuid:
        labels = (("gpu_uuid", model.gpu_uuid), *labels)
    if not model.tags:
        return labels
    tags = sorted((f"_{tag}", value) for tag, value in model.tags.items())
    return (*tags, *labels)

"""The labels of a model's metrics."""

from __future__ import annotations

from penstock.models.serving.answers import ModelStatistics

Label = tuple[str, str]


def model_labels(model: ModelStatistics, *more: Label) -> tuple[Label, ...]:
    """Tags of the configuration (C-31), model, `more`, and version, sorted by name."""
    tags = sorted((f"_{tag}", value) for tag, value in model.tags.items())
    return (*tags, ("model", model.name), *more, ("version", model.version))

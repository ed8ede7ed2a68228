"""The labels that every number of a model has."""

from __future__ import annotations

from penstock.models.serving.answers import ModelStatistics

Label = tuple[str, str]


def model_labels(model: ModelStatistics, *more: Label) -> tuple[Label, ...]:
    """The tags of its configuration (C-31), the model, `more`, and its version: by name."""
    tags = sorted((f"_{tag}", value) for tag, value in model.tags.items())
    return (*tags, ("model", model.name), *more, ("version", model.version))

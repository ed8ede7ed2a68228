"""The labels that every number of a model has."""

from __future__ import annotations

from penstock.models.views import ModelStatistics

Label = tuple[str, str]


def model_labels(model: ModelStatistics) -> tuple[Label, Label]:
    """The model and its version."""
    return ("model", model.name), ("version", model.version)

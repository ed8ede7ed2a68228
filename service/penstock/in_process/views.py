"""Metadata as dictionaries, with the names of the protocol's JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock.models.serving.answers import ModelMetadata
from penstock.server.answers import ServerMetadata


def server_view(metadata: ServerMetadata) -> dict[str, Any]:
    """Name, version and extensions of a server."""
    return {name: _plain(value) for name, value in asdict(metadata).items()}


def model_view(metadata: ModelMetadata) -> dict[str, Any]:
    """Tensors and versions of a model."""
    return {name: _plain(value) for name, value in asdict(metadata).items()}


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value

"""A repository of models that call each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conformance.python_models.bls.models import MODELS
from conformance.python_models.repository import write_models


@pytest.fixture(scope="module")
def repository(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that call each other, and the language model of the demo."""
    directory = write_models(tmp_path_factory.mktemp("models"), MODELS)
    shutil.copytree(demo / "tiny_llm", directory / "tiny_llm")
    return directory

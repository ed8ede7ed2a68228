"""Repositories that are written for a test, and what is read of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.core.errors import InternalError
from penstock.models.repository.repository import ModelFiles, ModelRepository

CONFIG = 'backend: "identity" max_batch_size: 4'


def write_files(root: Path, *paths: str, text: str = "") -> None:
    """Files with `text`, and folders where a path ends in a slash."""
    for path in paths:
        target = root / path
        (target if path.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            target.write_text(text)


def read_model(root: Path, name: str = "m", config_name: str = "") -> ModelFiles:
    return ModelRepository([root], config_name).read(name)


def poll_failure(
    caplog: pytest.LogCaptureFixture, repository: ModelRepository, name: str = "m"
) -> str:
    """What is logged, once; the client learns the same, behind Triton's words."""
    text = f"failed to load '{name}', failed to poll from model repository"
    with pytest.raises(InternalError, match=f"^{re.escape(text)}") as refused:
        repository.read(name)
    logged = caplog.messages[-1]
    _, _, reason = logged.partition(f"Poll failed for model directory '{name}'")
    assert refused.value.message == f"{text}{reason}"
    return logged

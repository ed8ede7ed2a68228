"""The real engine with the demo's model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backends.openvino_genai.asking import opened
from penstock.testing import RunningInstance


@pytest.fixture
async def instance(gguf_version: Path) -> AsyncIterator[RunningInstance]:
    async with opened(gguf_version) as instance:
        yield instance

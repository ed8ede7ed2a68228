"""Every line of docs/reference/openai-fields.md is what the application over this engine does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from backends.exchanging import application
from backends.openai_fields import Row, rows, said
from backends.openvino_genai.asking import opened
from penstock.core.application import BackendApplication

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(gguf_version: Path) -> AsyncIterator[BackendApplication]:
    async with opened(gguf_version) as instance, application(instance.backend) as app:
        yield app


async def test_every_table_of_the_page_is_read() -> None:
    assert {row.path for row in rows()} == {
        *("/v1/chat/completions", "/v1/completions", "/v1/responses")
    }


@pytest.mark.parametrize("row", rows(), ids=str)
async def test_request_is_answered_as_the_page_says(row: Row, app: BackendApplication) -> None:
    assert await row.answered(app) == said(row.openvino_genai)

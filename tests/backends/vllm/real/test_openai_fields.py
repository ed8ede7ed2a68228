"""Every line of docs/reference/openai-fields.md is what vLLM does behind this backend."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backends.exchanging import application
from backends.openai_fields import Row, rows, said
from penstock.core.application import BackendApplication
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(instance: RunningInstance) -> AsyncIterator[BackendApplication]:
    async with application(instance.backend) as app:
        yield app


@pytest.mark.parametrize("row", rows(), ids=str)
async def test_request_is_answered_as_the_page_says(row: Row, app: BackendApplication) -> None:
    assert await row.answered(app) == said(row.vllm)

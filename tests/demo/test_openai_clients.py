"""The clients of OpenAI's API that people use, against the demo's language model."""

from __future__ import annotations

import pytest

from harness.openai_clients import (
    EXPECTED,
    MISSING,
    asked_by,
    asked_by_the_official_client,
)
from harness.serving import Served

pytestmark = pytest.mark.slow


def test_the_official_client_gets_what_it_asks_for(served: Served) -> None:
    assert asked_by_the_official_client(served.http, "tiny_llm") == EXPECTED["openai"]


@pytest.mark.needs("LiteLLM and LangChain", MISSING)
@pytest.mark.parametrize("client", EXPECTED)
def test_further_clients_get_what_they_ask_for(client: str, served: Served) -> None:
    assert asked_by(client, served.http, "tiny_llm") == EXPECTED[client]

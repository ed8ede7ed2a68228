"""The clients of OpenAI's API that people use, against the demo's language model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.openai_clients import (
    EXPECTED,
    MISSING,
    asked_by,
    asked_by_the_official_client,
)
from harness.serving import Served, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(demo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("clients") / "log"
    with serving(
        demo_repository, log, "--model-control-mode=explicit", "--load-model=tiny_llm"
    ) as server:
        yield server


def test_the_official_client_gets_what_it_asks_for(served: Served) -> None:
    assert asked_by_the_official_client(served.http, "tiny_llm") == EXPECTED["openai"]


@pytest.mark.needs("LiteLLM and LangChain", MISSING)
@pytest.mark.parametrize("client", EXPECTED)
def test_further_clients_get_what_they_ask_for(client: str, served: Served) -> None:
    assert asked_by(client, served.http, "tiny_llm") == EXPECTED[client]

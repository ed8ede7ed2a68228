"""vLLM's OpenAI application behind a real server: clients, and requests that are meant to harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from backends.vllm.real.conftest import SETTINGS
from backends.vllm.test_real_engine import PYTHON, missing
from harness.openai_bad_requests import BAD, CHAT, JSON, chat, others
from harness.openai_clients import (
    EXPECTED,
    MISSING,
    asked_by,
    asked_by_the_official_client,
)
from harness.serving import Served, serving

pytestmark = [pytest.mark.slow, pytest.mark.needs("vLLM", missing())]

STATUSES = {
    "body that a model does not read": 400,
    "100,000 parts": 400,
    "a million token ids and a text": 400,
    "text of 8 MB to tokenize": 400,
    "message without content": 200,
    "unknown role": 200,
    "result of no call": 200,
    "property with a quote": 200,
    "property with a line end": 200,
    "repetition of 99,999": 200,
    "schema that refers to itself": 200,
}
"""Where vLLM answers with another status than models without a kit of their own; it takes more."""


@pytest.fixture(scope="module")
def served(checkpoint_version: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The model `tiny_llm` on vLLM."""
    folder = tmp_path_factory.mktemp("openai")
    version = folder / "models" / "tiny_llm" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(
        'backend: "vllm"\nmodel_transaction_policy { decoupled: True }\n'
        "instance_group [{ kind: KIND_MODEL }]\n"
    )
    (version / "model").symlink_to(checkpoint_version / "model")
    talking = {"tool_call_parser": "hermes", "enable_auto_tool_choice": True}
    forms = {"backend": "xgrammar", "disable_any_whitespace": True}
    settings = {
        **SETTINGS,
        "enable_lora": False,
        "openai": talking,
        "structured_outputs_config": forms,  # this model is fond of white space
    }
    del settings["max_lora_rank"]
    (version / "model.json").write_text(json.dumps(settings))
    python = f"--backend-config=vllm,python={PYTHON}"
    with serving(folder / "models", folder / "log", python, timeout=220) as server:
        yield server


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}", timeout=60) as http:
        yield http


def test_the_official_client_gets_what_it_asks_for(served: Served) -> None:
    assert asked_by_the_official_client(served.http, "tiny_llm") == EXPECTED["openai"]


@pytest.mark.needs("LiteLLM and LangChain", MISSING)
@pytest.mark.parametrize("client", EXPECTED)
def test_further_clients_get_what_they_ask_for(client: str, served: Served) -> None:
    assert asked_by(client, served.http, "tiny_llm") == EXPECTED[client]


def test_two_requests_may_have_the_same_id(http: httpx.Client) -> None:
    headers = {**JSON, "x-request-id": "twin"}
    with ThreadPoolExecutor(2) as threads:
        asked = [
            threads.submit(http.post, CHAT, content=chat(max_tokens=64), headers=headers)
            for _ in range(2)
        ]
    assert [one.result().status_code for one in asked] == [200, 200]


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name][0] != "/v1/embeddings"])
def test_a_bad_request_is_answered_and_others_are_served(name: str, http: httpx.Client) -> None:
    path, body, status = BAD[name]
    with others(http, (CHAT, chat(temperature=0))):
        answer = http.post(path, content=body, headers=JSON)
    assert answer.status_code == STATUSES.get(name, status), answer.text[:500]
    assert len(answer.content) < 10_000

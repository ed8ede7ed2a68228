"""OpenAI's API of models in Python, of a pipeline and of an ensemble, on a server as users have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from demo.text_models import NAMES, write_text_models
from harness.openai_clients import (
    EXPECTED,
    MISSING,
    NEEDS_TOOLS,
    asked_by,
    asked_by_the_official_client,
)
from harness.serving import Served, serving, wait_until
from penstock.demo.language_model import CHECKPOINT

pytestmark = pytest.mark.slow

ANSWERS = {
    "shout": "<|USER|>HOW DO I OPEN A FILE?<|ASSISTANT|>",
    "words": "<|user|>How",
    "talk": "You say: How do I open a file?",
}
"""What models say whose answer is known, to one message, in full or to a length of one token."""
GENERATING = ("rag", "chain")


@pytest.fixture(scope="module")
def served(demo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("text_models")
    write_text_models(folder / "models")
    keys = {name: [f"sha256:{sha256(name.encode()).hexdigest()}"] for name in ("red", "blue")}
    tenants = {"tenants": {name: {"api_keys": hashes} for name, hashes in keys.items()}}
    (folder / "tenants.json").write_text(json.dumps(tenants))
    options = [f"--load-model={name}" for name in ("tiny_llm", "minilm", *NAMES)]
    options += [f"--model-repository={folder / 'models'}", f"--tenants={folder / 'tenants.json'}"]
    options.append(f"--openai-tokenizer={CHECKPOINT}")
    explicit = "--model-control-mode=explicit"
    with serving(demo_repository, folder / "log", explicit, *options) as server:
        yield server


def asked(model: str, text: str = "How do I open a file?") -> Any:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def page(served: Served) -> str:
    return httpx.get(served.metrics, verify=False).text


def test_models_from_text_to_text_are_listed(client: openai.OpenAI) -> None:
    assert [one.id for one in client.models.list()] == sorted(["tiny_llm", "minilm", *NAMES])


@pytest.mark.parametrize("model", ANSWERS)
def test_chats_completions_and_responses_are_the_texts(client: openai.OpenAI, model: str) -> None:
    length: Any = {"max_tokens": 1} if model == "words" else {}
    whole = client.chat.completions.create(**asked(model), **length)
    assert whole.choices[0].message.content == ANSWERS[model]
    assert whole.choices[0].finish_reason == "stop"
    chunks = client.chat.completions.create(**asked(model), **length, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == ANSWERS[model]
    given: Any = {"max_output_tokens": 1} if model == "words" else {}
    response = client.responses.create(model=model, input="How do I open a file?", **given)
    assert response.output_text == ANSWERS[model]
    completion = client.completions.create(model=model, prompt=["a", "b"])
    texts = {"shout": ["A", "B"], "words": ["a", "b"], "talk": ["You say: a", "You say: b"]}
    assert [one.text for one in completion.choices] == texts[model]


@pytest.mark.parametrize("model", GENERATING)
def test_the_official_client_gets_what_it_asks_for(served: Served, model: str) -> None:
    seen = asked_by_the_official_client(served.http, model, None)
    assert seen == EXPECTED["openai"] - NEEDS_TOOLS


@pytest.mark.needs("LiteLLM and LangChain", MISSING)
@pytest.mark.parametrize(
    ("client", "model"), [("litellm", "rag"), ("langchain", "rag"), ("langchain", "chain")]
)
def test_further_clients_get_what_they_ask_for(served: Served, client: str, model: str) -> None:
    seen = asked_by(client, served.http, model, "--without-tools")
    assert seen == EXPECTED[client] - NEEDS_TOOLS


def test_tokens_are_counted_by_the_tokenizer_that_is_named(client: openai.OpenAI) -> None:
    """By the server's, whose template adds two tokens; and by the model's own, without one."""
    tokens = {}
    for model in ("shout", "talk"):
        usage = client.chat.completions.create(**asked(model)).usage
        assert usage is not None
        assert usage.completion_tokens > usage.prompt_tokens
        tokens[model] = usage.prompt_tokens
    assert tokens["shout"] == tokens["talk"] + 2


@pytest.mark.parametrize(
    ("model", "steps"),
    [("shout", []), ("rag", ["minilm", "tiny_llm"]), ("chain", ["trim", "tiny_llm"])],
)
def test_the_trace_of_an_answer_has_the_models_behind_it(
    client: openai.OpenAI, model: str, steps: list[str]
) -> None:
    length: Any = {"max_tokens": 4} if steps else {}
    raw = client.chat.completions.with_raw_response
    answer = raw.create(**asked(model), **length, extra_headers={"penstock-explain": "1"})
    traced = json.loads(answer.headers["penstock-explain"])["requests"]
    found = [(one["model"], one.get("parent")) for one in traced]
    assert found == [(model, None), (model, 0), *((step, 1) for step in steps)]


def test_a_request_ends_with_its_deadline(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="eadline") as found:
        client.chat.completions.create(
            **asked("talk", "wait"), extra_headers={"request-timeout": "1"}
        )
    assert found.value.status_code == 504


def test_a_stream_is_stopped_by_its_id(served: Served, client: openai.OpenAI) -> None:
    own = client.with_options(api_key="red", default_headers={"x-request-id": "mine"})
    stream = own.chat.completions.create(**asked("talk", "wait"), stream=True)
    assert next(stream).choices[0].delta.role == "assistant"
    headers = {"authorization": "Bearer red"}
    url = f"http://{served.http}/v1/requests/mine"
    assert httpx.delete(url, headers=headers, verify=False).status_code == 200
    with pytest.raises(openai.APIError, match="cancel"):
        list(stream)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("logprobs", True),
        ("n", 2),
        ("temperature", 0.5),
        ("max_tokens", 4),
        ("response_format", {"type": "json_object"}),
    ],
)
def test_what_a_model_cannot_take_is_refused_by_name(
    client: openai.OpenAI, field: str, value: Any
) -> None:
    with pytest.raises(openai.BadRequestError, match=f"'{field}' (is|are) not supported") as found:
        client.chat.completions.create(**asked("talk"), **{field: value})
    assert found.value.param == field


def test_a_failure_of_the_model_is_told(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="no such text"):
        client.chat.completions.create(**asked("talk", "fail"))
    with pytest.raises(openai.InternalServerError, match="no such text"):
        client.chat.completions.create(**asked("talk", "fail"), stream=True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_request(served: Served, stream: bool) -> None:
    body = {**asked("talk", "wait"), "stream": stream}
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"http://{served.http}/v1/chat/completions", json=body, timeout=1, verify=False)
    running = re.compile(r'penstock_in_flight_requests{model="talk".*} (\d+)')
    wait_until(lambda: {float(one) for one in running.findall(page(served))} == {0})


@pytest.mark.parametrize("model", ["words", "chain"])
def test_requests_and_tokens_are_counted_for_their_tenant(
    served: Served, client: openai.OpenAI, model: str
) -> None:
    for tenant in ("red", "red", "blue"):
        own = client.with_options(api_key=tenant)
        own.chat.completions.create(**asked(model), max_tokens=2)
    kinds = r"(requests|generated_tokens)"
    found = re.findall(
        rf'tenant_{kinds}_total{{tenant="(\w+)",model="{model}".*}} (\d+)', page(served)
    )
    assert {("requests", "red", "2"), ("requests", "blue", "1")} <= set(found)
    assert {tenant for kind, tenant, count in found if kind != "requests" and int(count)} >= {
        "red",
        "blue",
    }

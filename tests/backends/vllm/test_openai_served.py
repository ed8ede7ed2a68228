"""vLLM's OpenAI application behind a real server: clients, and requests that are meant to harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from backends.vllm.real.conftest import IN_CORE, SETTINGS
from backends.vllm.test_real_engine import PYTHON, engine_environment, missing
from demo.test_openai_upstream import (
    ASKED,
    COMPLETIONS,
    ask,
    test_defaults,
    test_echo,
    test_invalid_sampling_parameters,
    test_length,
    test_messages_of_any_form,
    test_results_of_tools_are_read,
    test_sampling_parameters,
    test_streams_say_what_whole_answers_do,
    test_temperature_and_seed,
    test_unknown_models,
    test_what_is_missing_is_told,
    text,
)
from harness.openai_bad_requests import BAD, CHAT, JSON, chat, others
from harness.openai_clients import (
    EXPECTED,
    MISSING,
    asked_by,
    asked_by_the_official_client,
)
from harness.serving import Served, serving
from programs.openai_clients import CONSTANTS

__all__ = [  # tests of Triton's own frontend, asked of this model, too
    "test_defaults",
    "test_echo",
    "test_invalid_sampling_parameters",
    "test_length",
    "test_messages_of_any_form",
    "test_results_of_tools_are_read",
    "test_sampling_parameters",
    "test_streams_say_what_whole_answers_do",
    "test_temperature_and_seed",
    "test_unknown_models",
    "test_what_is_missing_is_told",
]

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm", missing())]

STATUSES = {
    "body that a model does not read": 400,
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
    talking = {
        "tool_call_parser": "hermes",
        "enable_auto_tool_choice": True,
        "enable_scale_out": True,
    }
    settings = {**SETTINGS, **IN_CORE, "enable_lora": False, "openai": talking}
    del settings["max_lora_rank"]
    (version / "model.json").write_text(json.dumps(settings))
    python = f"--backend-config=vllm,python={PYTHON}"
    alias = "--openai-alias=gpt-4o-mini=tiny_llm"
    with engine_environment() as environment:
        environment.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
        with serving(folder / "models", folder / "log", python, alias, timeout=220) as server:
            yield server


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}", timeout=60, verify=False) as http:
        yield http


@pytest.fixture
def refusals() -> set[str]:
    """The types of errors by which vLLM, or what is in front of it, refuses a request."""
    return {"BadRequestError", "Bad Request", "invalid_request_error"}


def test_the_official_client_gets_what_it_asks_for(served: Served) -> None:
    seen = asked_by_the_official_client(served.http, "tiny_llm", CONSTANTS)
    assert seen == EXPECTED["openai"]


@pytest.mark.needs("LiteLLM and LangChain", MISSING)
@pytest.mark.parametrize("client", EXPECTED)
def test_further_clients_get_what_they_ask_for(client: str, served: Served) -> None:
    assert asked_by(client, served.http, "tiny_llm", "--constants") == EXPECTED[client]


def test_headers_explain_a_whole_answer(http: httpx.Client) -> None:
    headers = {**JSON, "penstock-explain": "1"}
    answer = http.post(CHAT, content=chat(max_tokens=4, ignore_eos=True), headers=headers)
    told = json.loads(answer.headers["penstock-explain"])["requests"][0]
    assert told["gen_ai.usage.output_tokens"] == 4
    usage = answer.json()["usage"]
    found = [int(answer.headers[f"x-{name}-tokens"]) for name in ("prompt", "generated", "wasted")]
    assert found == [usage["prompt_tokens"], usage["completion_tokens"], 0]
    times = ("time-to-first-token", "total-time")
    assert all(float(answer.headers[f"x-{name}"]) > 0 for name in times)


def test_last_event_explains_a_stream(http: httpx.Client) -> None:
    headers = {**JSON, "penstock-explain": "1"}
    body = chat(max_tokens=4, ignore_eos=True, stream=True)
    *_, done, last, rest = http.post(CHAT, content=body, headers=headers).text.split("\n\n")
    kind, _, text = last.partition("\ndata: ")
    assert (done, kind, rest) == ("data: [DONE]", "event: penstock-explain", "")
    told = json.loads(text)["requests"][0]
    assert (told["gen_ai.usage.output_tokens"], told["gen_ai.request.stream"]) == (4, True)


def test_several_prompts_are_not_told_as_one(http: httpx.Client) -> None:
    body = {"model": "tiny_llm", "prompt": ["The file", "A file"], "max_tokens": 4}
    answer = http.post("/v1/completions", json=body, headers={"penstock-explain": "1"})
    assert answer.status_code == 200
    assert "penstock-explain" in answer.headers
    assert "x-generated-tokens" not in answer.headers


def test_alias_stands_for_its_model(http: httpx.Client) -> None:
    answer = http.post(CHAT, content=chat(model="gpt-4o-mini"), headers=JSON)
    assert (answer.status_code, answer.json()["model"]) == (200, "tiny_llm")


def test_priority_wants_a_scheduling_policy(http: httpx.Client) -> None:
    answer = http.post(CHAT, content=chat(priority=3), headers=JSON)
    assert answer.status_code == 400
    assert '"scheduling_policy": "priority"' in answer.json()["error"]["message"]


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
    assert answer.status_code == 200 or answer.json()["error"]["message"]
    assert len(answer.content) < 10_000


HELLO = [{"role": "user", "content": "How do I open a file?"}]
ROUTES: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/messages": ({"messages": HELLO, "max_tokens": 4}, "content"),
    "/v1/messages/count_tokens": ({"messages": HELLO}, "input_tokens"),
    "/v1/chat/completions/batch": ({"messages": [HELLO, HELLO], "max_tokens": 4}, "choices"),
    "/v1/chat/completions/render": ({"messages": HELLO}, "token_ids"),
    "/v1/completions/render": ({"prompt": "The file is"}, "token_ids"),
    "/v1/messages/render": ({"messages": HELLO, "max_tokens": 4}, "token_ids"),
    "/v1/responses/render": ({"input": "The file is"}, "token_ids"),
    "/inference/v1/generate": (
        {"token_ids": [5, 6], "sampling_params": {"max_tokens": 4}},
        "choices",
    ),
}
"""Routes that no client of these tests asks, with a request and a member of the answer."""


@pytest.mark.parametrize("path", ROUTES)
def test_route_is_answered(path: str, http: httpx.Client) -> None:
    body, member = ROUTES[path]
    answer = http.post(path, json={"model": "tiny_llm", **body})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told[0] if isinstance(told, list) else told)[member]


def test_stored_response_is_found_by_its_id_and_one_that_runs_is_cancelled(served: Served) -> None:
    given: Any = {"model": "tiny_llm", "input": "How?"}
    with openai.OpenAI(base_url=f"http://{served.http}/v1", api_key="none") as client:
        made = client.responses.create(**given, max_output_tokens=4)
        assert client.responses.retrieve(made.id).output_text == made.output_text != ""
        after = client.responses.create(
            **given, max_output_tokens=4, previous_response_id=made.id, store=False
        )
        assert after.usage.input_tokens > made.usage.input_tokens
        runs = client.responses.create(**given, background=True)
        assert client.responses.cancel(runs.id).status == "cancelled"
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve("resp_1", extra_query={"model": "tiny_llm"})


def streamed(http: httpx.Client, path: str, **fields: Any) -> list[Any]:
    """The chunks of a stream."""
    told = http.post(path, json={**ASKED[path], "stream": True, **fields}).content.decode()
    *events, done = told.strip().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(one.removeprefix("data: ")) for one in events]


def test_text_ends_before_what_stops_it(http: httpx.Client) -> None:
    asked: Any = {"max_tokens": 24, "temperature": 0}
    alone = text(http, COMPLETIONS, **asked)
    stop = alone[len(alone) // 2 :][:3]
    (choice,) = ask(http, COMPLETIONS, **asked, stop=stop)["choices"]
    assert choice["text"] == alone[: alone.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


def test_probabilities_are_those_of_the_tokens_of_the_text(http: httpx.Client) -> None:
    asked: Any = {"max_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    (choice,) = ask(http, **asked)["choices"]
    told = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in told) == choice["message"]["content"]
    assert [one["logprob"] for one in told] == [one["top_logprobs"][0]["logprob"] for one in told]
    assert {len(one["top_logprobs"]) for one in told} == {2}


@pytest.mark.parametrize("path", ASKED)
def test_usage_grows_with_the_stream_and_tells_of_cached_tokens(
    path: str, http: httpx.Client
) -> None:
    asked: Any = {"max_tokens": 8, "ignore_eos": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = streamed(http, path, **asked, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 8
    for usage in (chunks[-1]["usage"], ask(http, path, **asked)["usage"]):
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_characters_are_not_cut_between_chunks(http: httpx.Client) -> None:
    said = "naïve ☃ 日本語 😀🏽"
    chunks = streamed(http, CHAT, structured_outputs={"choice": [said]}, max_tokens=100)
    parts = [one["choices"][0]["delta"].get("content") or "" for one in chunks]
    assert "".join(parts) == said
    assert len(parts) > 3

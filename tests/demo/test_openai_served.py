"""OpenAI's own client against a server with the demo's models."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.slow

ASKED: Any = [{"role": "user", "content": "How do I open a file?"}]
ENDLESS: Any = {"ignore_eos": True}
EXPLAINED = {"penstock-explain": "1"}


@pytest.fixture(scope="module")
def served(demo_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("openai") / "log"
    loaded = [f"--load-model={name}" for name in ("tiny_llm", "minilm", "reranker")]
    explicit = ["--model-control-mode=explicit", *loaded]
    alias = "--openai-alias=gpt-4o-mini=tiny_llm"
    with serving(demo_repository, log, *explicit, "--openai-port=0", alias) as server:
        yield server


def stream(client: openai.OpenAI, tokens: int) -> openai.Stream[Any]:
    return client.chat.completions.create(
        model="tiny_llm", messages=ASKED, max_tokens=tokens, stream=True, extra_body=ENDLESS
    )


def metric(served: Served, name: str) -> float:
    lines = httpx.get(served.metrics, verify=False).text.splitlines()
    start = f'{name}{{model="tiny_llm",version="1"}} '
    return next(float(line.removeprefix(start)) for line in lines if line.startswith(start))


def pid(served: Served) -> int:
    """The process of the language model; 0 while there is none."""
    page = httpx.get(served.metrics, verify=False).text
    found = re.search(r'penstock_model_process_pid{.*model="tiny_llm".*} (\d+)', page)
    return int(found[1]) if found is not None else 0


def reload(served: Served) -> None:
    """Load the language model anew, with another configuration, while it serves."""
    config = httpx.get(f"http://{served.http}/v2/models/tiny_llm/config", verify=False).json()
    config["parameters"]["reloaded"] = {"string_value": "1"}
    body = {"parameters": {"config": json.dumps(config)}}
    path = f"http://{served.http}/v2/repository/models/tiny_llm/load"
    assert httpx.post(path, json=body, timeout=60, verify=False).status_code == 200


def test_chat_whole_and_streamed_say_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="tiny_llm", messages=ASKED, max_tokens=16, temperature=0
    )
    parts = client.chat.completions.create(
        model="tiny_llm",
        messages=ASKED,
        max_tokens=16,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(parts)
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


@pytest.mark.contract("OA-01", "OA-08")
def test_own_port_has_the_api_health_and_metrics(served: Served) -> None:
    found = re.search(r"Started OpenAIService at \S+:(\d+)", served.log.read_text())
    assert found is not None
    with httpx.Client(base_url=f"http://127.0.0.1:{found[1]}", timeout=60, verify=False) as http:
        body = {"model": "tiny_llm", "messages": ASKED, "max_tokens": 1}
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        assert http.get("/health/ready").status_code == 200
        assert "nv_inference_count" in http.get("/metrics").text
        assert http.get("/v2").status_code == 404


@pytest.mark.contract("OA-26")
def test_models_embeddings_and_answers_with_their_head(client: openai.OpenAI) -> None:
    assert [one.id for one in client.models.list()] == [
        "minilm",
        "reranker",
        "tiny_llm",
        "gpt-4o-mini",
    ]
    vectors = client.embeddings.create(model="minilm", input=["a", "b"]).data
    assert [len(one.embedding) for one in vectors] == [384, 384]
    raw = client.with_options(default_headers={"x-request-id": "mine"}).responses
    answer = raw.with_raw_response.create(model="tiny_llm", input="hello", max_output_tokens=4)
    assert answer.headers["x-request-id"] == "mine"
    assert answer.parse().output_text


_PATHS: Any = {
    "/v1/chat/completions": {"messages": ASKED, "max_tokens": 4},
    "/v1/completions": {"prompt": "The file is", "max_tokens": 4},
    "/v1/responses": {"input": "How do I open a file?", "max_output_tokens": 4},
}


@pytest.mark.parametrize("path", _PATHS)
def test_headers_explain_a_whole_answer(served: Served, path: str) -> None:
    body = {"model": "tiny_llm", "temperature": 0, **_PATHS[path]}
    answer = httpx.post(
        f"http://{served.http}{path}", json=body, headers=EXPLAINED, timeout=60, verify=False
    )
    told = json.loads(answer.headers["penstock-explain"])["requests"][0]
    usage = answer.json()["usage"]
    assert told["gen_ai.usage.output_tokens"] == 4
    assert answer.headers["x-generated-tokens"] == "4"
    assert int(answer.headers["x-prompt-tokens"]) in usage.values()
    times = ("queue-time", "time-to-first-token", "time-per-token", "total-time")
    assert all(float(answer.headers[f"x-{name}"]) >= 0 for name in times)
    assert answer.headers["x-wasted-tokens"] == "0"


@pytest.mark.parametrize("path", _PATHS)
def test_last_event_explains_a_stream(served: Served, path: str) -> None:
    body = {"model": "tiny_llm", "temperature": 0, "stream": True, **_PATHS[path]}
    answer = httpx.post(
        f"http://{served.http}{path}", json=body, headers=EXPLAINED, timeout=60, verify=False
    )
    *_, last, rest = answer.text.split("\n\n")
    kind, _, text = last.partition("\ndata: ")
    assert (kind, rest) == ("event: penstock-explain", "")
    told = json.loads(text)["requests"][0]
    assert told["gen_ai.usage.output_tokens"] == 4
    assert told["penstock.llm.total_time_ms"] >= told["penstock.llm.time_to_first_token_ms"] > 0


def test_client_reads_a_stream_that_is_explained(client: openai.OpenAI) -> None:
    explained = client.with_options(default_headers=EXPLAINED)
    assert list(stream(explained, 4))[-1].choices[0].finish_reason == "length"


def test_several_prompts_are_not_told_as_one(served: Served) -> None:
    prompts = ["The file", "A file"]
    body = {"model": "tiny_llm", "temperature": 0, "prompt": prompts, "max_tokens": 4}
    url = f"http://{served.http}/v1/completions"
    answer = httpx.post(url, json=body, headers=EXPLAINED, timeout=60, verify=False)
    assert answer.json()["usage"]["completion_tokens"] == 8
    assert "penstock-explain" in answer.headers
    assert "x-generated-tokens" not in answer.headers


def test_alias_stands_for_its_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=ASKED, max_tokens=4)
    assert answer.model == "tiny_llm"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"model": "lost"}, openai.NotFoundError),
        ({"model": "tiny_llm", "messages": []}, openai.BadRequestError),
        ({"model": "minilm"}, openai.NotFoundError),
    ],
)
def test_errors_are_those_of_the_client(
    client: openai.OpenAI, body: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as refused:
        client.chat.completions.create(**{"messages": ASKED, **body})
    assert refused.value.request_id
    assert refused.value.type


def test_client_that_leaves_cancels_the_generation(client: openai.OpenAI, served: Served) -> None:
    name = "penstock_llm_cancelled_requests_total"
    before = metric(served, name)
    chunks = stream(client, 400)
    next(iter(chunks))
    chunks.close()
    wait_until(lambda: metric(served, name) == before + 1)


def test_reload_breaks_no_stream(client: openai.OpenAI, served: Served) -> None:
    old = pid(served)
    stop = threading.Event()

    def streams() -> list[str | None]:
        """How each ended."""
        found = []
        while not stop.is_set():
            found.append(list(stream(client, 32))[-1].choices[0].finish_reason)
        return found

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(streams) for _ in range(3)]
        try:
            reload(served)
            assert pid(served) not in (0, old)
        finally:
            stop.set()
    assert {end for one in running for end in one.result()} == {"length"}


def test_killed_model_ends_its_stream_and_leaves_others(
    client: openai.OpenAI, served: Served
) -> None:
    chunks = iter(stream(client, 450))
    next(chunks)
    os.kill(pid(served), signal.SIGKILL)
    with pytest.raises(openai.APIError, match="model process was killed"):
        list(chunks)
    assert client.embeddings.create(model="minilm", input="a").data

    refused: list[tuple[int, str]] = []

    def answers() -> bool:
        try:
            return bool(list(stream(client, 2)))
        except openai.InternalServerError as error:
            refused.append((error.status_code, error.response.headers["retry-after"]))
            return False

    wait_until(answers)
    assert set(refused) <= {(503, "1")}


def test_the_reranker_puts_passages_in_order(http: httpx.Client) -> None:
    passages = ["A list has no end.", "A lock is held by one thread.", "Open a file with open()."]
    body = {"model": "reranker", "query": "How is a file opened?", "documents": passages}
    answer = http.post("/v1/rerank", json=body).json()
    assert "results" in answer, answer
    assert answer["results"][0]["index"] == 2
    assert all(0 < one["relevance_score"] < 1 for one in answer["results"])
    assert answer["usage"]["total_tokens"] > 30

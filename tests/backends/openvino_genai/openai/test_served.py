"""OpenAI's API on a server that is started as a user would, with the official clients."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from backends.conftest import write_settings
from backends.openai_kit.scripted import events_of
from harness.processes import command_of
from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_MESSAGES: Any = [{"role": "user", "content": "How do I open a file?"}]
_ENDLESS: Any = {
    "model": "m",
    "messages": _MESSAGES,
    "stream": True,
    "ignore_eos": True,
    "max_tokens": 900,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, gguf_version: Path) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("openai")
    version = folder / "models" / "m" / "1"
    version.mkdir(parents=True)
    for name in ("model.gguf", "tokenizer.json"):
        (version / name).symlink_to(gguf_version / name)
    write_settings(version, num_kv_blocks=256)
    (version.parent / "config.pbtxt").write_text('backend: "openvino_genai"\n')
    option = "--http-restricted-api=request-control:admin=secret"
    with serving(version.parent.parent, folder / "log", option) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    url = f"http://{served.http}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}", timeout=60, verify=False) as http:
        yield http


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def metric(served: Served, name: str) -> float:
    """The value of a metric of the model, 0 without one."""
    found = re.search(
        rf"^{name}\{{.*\}} (.*)$", httpx.get(served.metrics, verify=False).text, re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def test_chats_and_responses_by_the_official_client(client: openai.OpenAI) -> None:
    asked: Any = {"model": "m", "messages": _MESSAGES, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked) as stream:
        assert [event.type for event in stream][-1] == "content.done"
        streamed = stream.get_final_completion()
    assert whole.choices[0].message.content == streamed.choices[0].message.content
    assert whole.usage is not None
    given: Any = {"model": "m", "input": "How do I open a file?", "temperature": 0}
    with client.responses.stream(**given) as events:
        assert [event.type for event in events][-1] == "response.completed"
        assert events.get_final_response().output_text == whole.choices[0].message.content
    with client.chat.completions.with_streaming_response.create(**asked) as raw:
        assert raw.headers["x-request-id"]


def test_a_parsed_answer_is_of_its_class(client: openai.OpenAI) -> None:
    """Few classes come from this model in time, as it is fond of white space."""
    from pydantic import RootModel

    class Kind(RootModel[bool]):
        pass

    answer = client.beta.chat.completions.parse(
        model="m", messages=_MESSAGES, response_format=Kind, temperature=0, max_tokens=20
    )
    assert answer.choices[0].message.parsed in (Kind(True), Kind(False))


def test_a_wrong_request_is_refused_by_the_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="did you mean 'max_tokens'"):
        client.chat.completions.create(model="m", messages=_MESSAGES, extra_body={"max_token": 3})
    with pytest.raises(openai.NotFoundError, match="does not serve /v1/embeddings"):
        client.embeddings.create(model="m", input="a")


def test_a_client_that_leaves_frees_the_engine(served: Served, http: httpx.Client) -> None:
    before = metric(served, "penstock_llm_cancelled_requests_total")
    with http.stream("POST", "/v1/chat/completions", json=_ENDLESS) as answer:
        next(answer.iter_bytes())
    until(lambda: metric(served, "penstock_llm_cancelled_requests_total") == before + 1)
    until(lambda: metric(served, "penstock_llm_running_requests") == 0)


def test_requests_are_stopped_by_their_id(served: Served, http: httpx.Client) -> None:
    headers = {"x-request-id": "mine"}
    with http.stream("POST", "/v1/chat/completions", json=_ENDLESS, headers=headers) as answer:
        lines = answer.iter_text()
        text = next(lines)
        assert "chatcmpl-mine" in text
        stopped = httpx.delete(
            f"http://{served.http}/v1/requests/mine", headers={"admin": "secret"}, verify=False
        )
        assert stopped.status_code == 200
        text += "".join(lines)
    assert "error" in events_of(text)[-1]
    until(lambda: metric(served, "penstock_llm_running_requests") == 0)


def test_a_process_that_dies_is_an_error_event_and_then_unavailable(
    served: Served, http: httpx.Client
) -> None:
    (worker,) = [pid for pid in served.family() if _is_worker(pid)]
    with http.stream("POST", "/v1/chat/completions", json=_ENDLESS) as answer:
        lines = answer.iter_text()
        text = next(lines)
        os.kill(worker, signal.SIGKILL)
        text += "".join(lines)
    assert events_of(text)[-1]["error"]["type"] == "service_unavailable_error"
    asked = {"model": "m", "prompt": "A", "max_tokens": 1}
    refused = http.post("/v1/completions", json=asked)
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    until(lambda: http.post("/v1/completions", json=asked).status_code == 200)


def _is_worker(pid: int) -> bool:
    return b"worker/bootstrap.py" in command_of(pid)

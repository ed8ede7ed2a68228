"""Models on vLLM behind a real server: commands over HTTP, and the death of an engine."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import tritonclient.grpc as grpcclient

from backends.vllm.real.conftest import IN_CORE, SETTINGS, add_adapter
from backends.vllm.test_real_engine import PYTHON, engine_environment, missing
from harness.serving import Served, alive, serving, wait_until
from penstock_backends.vllm.children import descendants

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm", missing())]

UNHEALTHY = "Model is unavailable due to unhealthy vLLM engine"
_CONFIG = """\
backend: "vllm"
model_transaction_policy { decoupled: True }
instance_group [{ kind: KIND_MODEL }]
"""
_CHECKED = (
    _CONFIG
    + """\
parameters { key: "ENABLE_VLLM_HEALTH_CHECK" value { string_value: "true" } }
parameters { key: "REPORT_CUSTOM_METRICS" value { string_value: "true" } }
"""
)


@pytest.fixture(scope="module")
def served(checkpoint_version: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The models `plain`, which is restarted, and `checked`, which is unloaded."""
    folder = tmp_path_factory.mktemp("served")
    for name, config, place in (("plain", _CONFIG, {}), ("checked", _CHECKED, IN_CORE)):
        version = folder / "models" / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(config)
        (version / "model").symlink_to(checkpoint_version / "model")
        (version / "multi_lora.json").write_text("{}")
        settings = {**SETTINGS, "max_model_len": 256, "max_num_queued_reqs": 2, **place}
        (version / "model.json").write_text(json.dumps(settings))
    add_adapter(checkpoint_version / "model", folder / "models" / "plain" / "1" / "loud")
    with (
        engine_environment(),
        serving(
            folder / "models",
            folder / "log",
            f"--backend-config=vllm,python={PYTHON}",
            "--allow-engine-control=true",
            "--model-control-mode=explicit",
            "--load-model=*",
            "--http-header-forward-pattern=^x-data-parallel-rank$",
            "--grpc-header-forward-pattern=^x-data-parallel-rank$",
            timeout=220,
        ) as server,
    ):
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{served.http}", timeout=60, verify=False) as client:
        yield client


def ask(client: httpx.Client, model: str = "plain", **parameters: Any) -> httpx.Response:
    body = {"text_input": "The with statement", "max_tokens": 8, "temperature": 0, **parameters}
    return client.post(f"/v2/models/{model}/generate", json=body)


def text(client: httpx.Client, model: str = "plain", **parameters: Any) -> str:
    answer = ask(client, model, **parameters)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text_output"])


@pytest.mark.contract("VL-22")
def test_two_engines_of_one_server_answer_side_by_side(client: httpx.Client) -> None:
    """Each has the part of the memory that its `gpu_memory_utilization` says."""
    models = ["plain", "checked"]
    alone = [text(client, model) for model in models]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(3):
            assert list(threads.map(lambda model: text(client, model), models)) == alone


@pytest.fixture(scope="module", autouse=True)
def first_count(served: Served) -> tuple[int, list[str]]:
    """Tokens of the prompts of the first six requests, and the page that has counted them."""
    given = {"max_tokens": 16, "ignore_eos": True, "return_num_input_tokens": True}
    with httpx.Client(base_url=f"http://{served.http}", timeout=60, verify=False) as client:
        answers = [
            ask(client, "checked", text_input=prompt, **given).json()
            for prompt in ("The with", "An iterator", "A class") * 2
        ]
        wait_until(lambda: counted(served, "penstock_llm_requests_total") >= 6)
        wait_until(lambda: counted(served, "vllm:e2e_request_latency_seconds_count") >= 6)
        lines = client.get(served.metrics).text.splitlines()
    return sum(answer["num_input_tokens"] for answer in answers), lines


@pytest.mark.contract("VL-19", "VL-20")
def test_tritons_metrics_count_exactly_and_for_who_asks_only(
    first_count: tuple[int, list[str]],
) -> None:
    """Three prompts twice, 16 tokens each; the warm-up is not counted."""
    prompt_tokens, lines = first_count
    labels = '{model="checked",version="1"}'
    counted = {
        "vllm:generation_tokens_total": 96,
        "vllm:time_to_first_token_seconds_count": 6,
        "vllm:time_per_output_token_seconds_count": 90,
        "vllm:e2e_request_latency_seconds_count": 6,
        "vllm:request_prompt_tokens_count": 6,
        "vllm:request_generation_tokens_sum": 96,
        "vllm:request_params_n_count": 6,
        "penstock_llm_requests_total": 6,
        "penstock_llm_generation_tokens_total": 96,
        "penstock_llm_prefill_tokens_total": prompt_tokens,
    }
    assert {f"{name}{labels} {number}" for name, number in counted.items()} <= set(lines)
    ours = [one for one in lines if one.startswith("vllm:")]
    assert [one for one in ours if 'model="checked"' not in one] == []
    family = "vllm:time_per_output_token_seconds_bucket"
    assert f'{family}{{model="checked",version="1",le="+Inf"}} 90' in ours


def test_adapter_is_added_listed_and_removed(client: httpx.Client) -> None:
    path = "/v2/models/plain/adapters"
    without = text(client)
    assert ask(client, lora_name="loud").status_code == 400
    assert client.post(f"{path}/loud", json={"path": "loud"}).status_code == 200
    assert text(client, lora_name="loud") != without
    (listed,) = client.get(path).json()["instances"].values()
    (adapter,) = listed["adapters"]
    assert (adapter["name"], adapter["loaded"], adapter["requests"]) == ("loud", True, 0)
    assert client.delete(f"{path}/loud").status_code == 200
    assert "LoRA loud is not supported" in ask(client, lora_name="loud").json()["error"]


@pytest.mark.parametrize(
    ("name", "path", "why"),
    [("..%2Fx", "loud", "adapter name"), ("x", "/etc", "is not a folder below"), ("x", 1, "path")],
)
def test_bad_adapter_is_refused(client: httpx.Client, name: str, path: Any, why: str) -> None:
    answer = client.post(f"/v2/models/plain/adapters/{name}", json={"path": path})
    assert answer.status_code == 400
    assert why in answer.json()["error"]


def test_engine_that_sleeps_is_not_ready(client: httpx.Client) -> None:
    ready = "/v2/models/plain/ready"
    assert client.get(ready).status_code == 200
    assert client.post("/v2/models/plain/engine/sleep", json={"level": 0}).status_code == 200
    assert client.get(ready).status_code == 400
    refused = ask(client)
    assert refused.json() == {"error": "the engine is asleep; the action 'wake' wakes it"}
    assert text(client, "checked")
    assert client.post("/v2/models/plain/engine/wake").status_code == 200
    assert client.get(ready).status_code == 200
    assert text(client)


@pytest.mark.parametrize(("rank", "status"), [("0", 200), ("7", 400)])
def test_rank_may_come_as_a_header(client: httpx.Client, rank: str, status: int) -> None:
    body = {"text_input": "a", "max_tokens": 2}
    headers = {"X-Data-Parallel-Rank": rank}
    answer = client.post("/v2/models/plain/generate", json=body, headers=headers)
    assert answer.status_code == status
    if status == 400:
        assert "data_parallel_rank 7 is out of range" in answer.json()["error"]


@pytest.mark.parametrize(("rank", "text"), [("0", None), ("7", "rank 7 is out of range")])
def test_rank_may_come_as_metadata(served: Served, rank: str, text: str | None) -> None:
    prompt = grpcclient.InferInput("text_input", [1], "BYTES")
    prompt.set_data_from_numpy(np.array([b"a"], object))
    answers: Queue[Any] = Queue()
    with grpcclient.InferenceServerClient(served.grpc) as client:
        client.start_stream(
            callback=lambda result, error: answers.put(error),
            headers={"x-data-parallel-rank": rank},
        )
        client.async_stream_infer("plain", [prompt], parameters={"max_tokens": 2})
        error = answers.get(timeout=60)
    assert (error is None) == (text is None)
    assert text is None or text in error.message()


def counted(served: Served, family: str, labels: str = "") -> float:
    """The value of a metric of the model `checked`; NaN where it has none yet."""
    start = f'{family}{{{labels}model="checked",version="1"}} '
    lines = httpx.get(served.metrics, verify=False).text.splitlines()
    values = (float(line.removeprefix(start)) for line in lines if line.startswith(start))
    return next(values, math.nan)


def test_full_queue_of_the_engine_is_told_and_counted_as_such(
    client: httpx.Client, served: Served
) -> None:
    """`max_num_queued_reqs` counts requests that wait or run."""
    reason = 'reason="engine_requests",'
    before = counted(served, "penstock_llm_rejected_total", reason)
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: ask(client, "checked", max_tokens=100), range(6)))
    told = {answer.status_code: answer for answer in answers}
    assert set(told) == {200, 429}
    assert told[429].json()["error"].startswith("Error generating stream: The engine is currently")
    refused = before + sum(answer.status_code == 429 for answer in answers)
    wait_until(lambda: counted(served, "penstock_llm_rejected_total", reason) == refused)
    assert counted(served, "penstock_llm_rejected_total", 'reason="engine_tokens",') == 0
    assert counted(served, "penstock_llm_failed_requests_total") == 0
    assert text(client, "checked")


@pytest.fixture
def openai_client(served: Served) -> Iterator[openai.OpenAI]:
    base = f"http://{served.http}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def chat(client: openai.OpenAI, model: str = "plain", **more: Any) -> Any:
    asked: Any = [{"role": "user", "content": "hello"}]
    given: Any = {"max_tokens": 8, "temperature": 0, **more}
    return client.chat.completions.create(model=model, messages=asked, **given)


def test_openais_client_chats_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    whole = chat(openai_client)
    chunks = list(chat(openai_client, stream=True, stream_options={"include_usage": True}))
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_openais_client_names_adapters(client: httpx.Client, openai_client: openai.OpenAI) -> None:
    without = chat(openai_client).choices[0].message.content
    path = "/v2/models/plain/adapters/loud"
    assert client.post(path, json={"path": "loud"}).status_code == 200
    assert "plain:loud" in {one.id for one in openai_client.models.list()}
    assert chat(openai_client, "plain:loud").choices[0].message.content != without
    assert client.delete(path).status_code == 200
    with pytest.raises(openai.NotFoundError, match="LoRA loud is not supported"):
        chat(openai_client, "plain:loud")


def test_openais_client_is_refused_by_name(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="did you mean 'temperature'"):
        chat(openai_client, extra_body={"temprature": 1})


def test_openais_client_that_leaves_cancels(served: Served, openai_client: openai.OpenAI) -> None:
    """The engine's request ends as a cancelled one, not with all of its tokens."""
    many: Any = {"stream": True, "max_tokens": 200, "extra_body": {"ignore_eos": True}}
    before = counted(served, "penstock_llm_cancelled_requests_total")
    left = chat(openai_client, "checked", **many)
    next(left)
    left.close()
    wait_until(lambda: counted(served, "penstock_llm_cancelled_requests_total") == before + 1)
    wait_until(lambda: counted(served, "penstock_llm_running_requests") == 0)


def process_of(served: Served, model: str) -> int:
    """The process id of a model."""
    page = httpx.get(served.metrics, verify=False).text
    found = re.search(rf'penstock_model_process_pid{{.*model="{model}".*}} (\d+)', page)
    assert found is not None
    return int(found[1])


def kill_core(served: Served, model: str) -> None:
    """Kill the engine's core with SIGKILL; it is the first child of the model's process."""
    core = min(process.pid for process in descendants(process_of(served, model)))
    os.kill(core, signal.SIGKILL)


@pytest.mark.parametrize("killed", ["core", "process"])
def test_death_ends_a_stream_with_an_error_and_refuses_requests_until_it_is_back(
    killed: str, client: httpx.Client, served: Served, openai_client: openai.OpenAI
) -> None:
    """The engine's core dies, or the model's process; the other model serves on."""
    alone = text(client)
    many: Any = {"stream": True, "max_tokens": 200, "extra_body": {"ignore_eos": True}}
    chunks = chat(openai_client, "plain", **many)
    next(chunks)
    if killed == "core":
        kill_core(served, "plain")
    else:
        os.kill(process_of(served, "plain"), signal.SIGKILL)
    with pytest.raises(openai.APIError) as failed:
        list(chunks)
    assert isinstance(failed.value.body, dict), "the stream broke off without an event"
    assert chat(openai_client, "checked").choices
    refused: list[openai.APIStatusError] = []
    errors: list[str] = []

    def is_back() -> bool:
        answer = ask(client)
        errors.extend([answer.json()["error"]] if answer.status_code != 200 else ())
        try:
            return bool(chat(openai_client, "plain").choices)
        except openai.APIStatusError as error:
            refused.append(error)
            return False

    wait_until(is_back, 220)
    assert {error.status_code for error in refused} == {503}
    assert {"retry-after" in error.response.headers for error in refused} == {True}
    assert any("it is being restarted" in error for error in errors)
    causes = (UNHEALTHY, "model 'plain', instance 'plain_0_0': its model process ")
    assert [error for error in errors if not error.startswith(causes)] == []
    assert client.get("/v2/models/plain/ready").status_code == 200
    assert text(client) == alone


@pytest.mark.contract("VL-16")
@pytest.mark.last
def test_model_with_the_health_check_unloads_itself(client: httpx.Client, served: Served) -> None:
    kill_core(served, "checked")
    gone = "Request for unknown model: 'checked' has no available versions"
    errors: list[str] = []

    def is_unloaded() -> bool:
        answer = ask(client, "checked")
        if answer.status_code != 200:
            errors.append(answer.json()["error"])
        return gone in errors

    wait_until(is_unloaded)
    assert all(error == gone or error.startswith(UNHEALTHY) for error in errors)
    index = client.post("/v2/repository/index").json()
    wait_until(lambda: _state(client, "checked") == ("UNAVAILABLE", "unloaded"))
    assert {entry["name"] for entry in index} == {"plain", "checked"}
    assert text(client)


@pytest.mark.contract("VL-23")
@pytest.mark.last
def test_an_unload_waits_for_a_stream_and_ends_the_engine(
    client: httpx.Client, served: Served, openai_client: openai.OpenAI
) -> None:
    many: Any = {"stream": True, "max_tokens": 60, "extra_body": {"ignore_eos": True}}
    whole = chat(openai_client, "plain", **{**many, "stream": False}).choices[0].message.content
    process = process_of(served, "plain")
    engine = [process, *(each.pid for each in descendants(process))]
    chunks = chat(openai_client, "plain", **many)
    first = next(chunks)
    assert client.post("/v2/repository/models/plain/unload").status_code == 200
    assert ask(client).status_code != 200
    pieces = [each.choices[0].delta.content for each in (first, *chunks) if each.choices]
    assert "".join(filter(None, pieces)) == whole
    wait_until(lambda: _state(client, "plain") == ("UNAVAILABLE", "unloaded"))
    wait_until(lambda: not any(map(alive, engine)))
    assert _state(client, "plain") == ("UNAVAILABLE", "unloaded")


def _state(client: httpx.Client, model: str) -> tuple[str, str]:
    index = client.post("/v2/repository/index").json()
    (entry,) = (entry for entry in index if entry["name"] == model)
    return entry["state"], entry.get("reason", "")

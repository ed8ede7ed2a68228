"""vLLM's own OpenAI application over the engine of a model, without a server in front."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from vllm.v1.engine.exceptions import EngineGenerateError

from backends.generation import until, usage
from backends.vllm.real.scripted_model import scripted
from penstock.core.application import BackendApplication
from penstock.core.errors import ModelLoadError, UnsupportedError
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import ExchangePart, InferenceRequest, RequestScope, Sender
from penstock.core.stream import ResponseStream
from penstock.testing import RunningInstance
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.internals import EntryPoints

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def application(instance: RunningInstance) -> AsyncIterator[BackendApplication]:
    application = BackendApplication(instance.backend, "m")
    await application.start()
    yield application
    await application.close()


def begin(
    application: BackendApplication,
    path: str,
    body: Any,
    told: list[Any] | None = None,
    sender: Sender | None = None,
    **more: str,
) -> ResponseStream:
    headers = (("content-type", "application/json"),)
    exchange = HttpExchange("POST", path, headers=headers, body=json.dumps(body).encode())
    request = InferenceRequest(
        "m", exchange=exchange, parameters=more, scope=RequestScope(sender=sender)
    )
    if told is not None:
        request.scope.report_usage = lambda *tokens: told.append(tokens)
    return application.answer(request)


async def whole(stream: ResponseStream) -> tuple[int, Any]:
    status, text = await body_of(stream)
    return status, json.loads(text)


async def body_of(stream: ResponseStream) -> tuple[int, str]:
    parts = [one async for one in stream if isinstance(one, ExchangePart)]
    head = parts[0].head
    assert head is not None
    return head.status, b"".join(part.body for part in parts).decode()


async def test_chat_is_answered_with_its_usage(application: BackendApplication) -> None:
    status, answer = await whole(begin(application, "/v1/chat/completions", CHAT))
    assert (status, answer["object"], answer["model"]) == (200, "chat.completion", "m")
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_state_of_the_application_has_what_is_read_of_it(
    application: BackendApplication, instance: RunningInstance
) -> None:
    """Of a vLLM without it, the routes would be off."""
    shown: Any = application._app
    state = shown._app.state
    assert type(state.openai_serving_models.lora_requests) is dict
    assert state.engine_client.vllm_config is instance.backend._engine.llm.vllm_config
    assert state.server.should_exit is False


@pytest.mark.parametrize("given", [{}, {"response_role": "assistant"}])
async def test_a_vllm_that_does_not_fit_leaves_the_tensors(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    """Whatever it raises: of what the model says, vLLM's parser has read it all before."""
    for error in (TypeError("no 'state'"), KeyError("args"), AttributeError("renamed")):
        _break_state(monkeypatch, error)
        async with scripted(instance, **given) as (application, _):
            with pytest.raises(UnsupportedError, match="OpenAI routes of 'm' are off: "):
                await whole(begin(application, "/v1/chat/completions", CHAT))
    assert [one async for one in instance.infer({"text_input": "a"})]


async def test_value_error_is_the_models_only_where_it_says_something(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    _break_state(monkeypatch, ValueError("no template"))
    async with scripted(instance) as (application, _):
        assert not application.opened
    with pytest.raises(ModelLoadError, match=r"'openai' in '.*model.json': no template"):
        async with scripted(instance, chat_template="{{"):
            pass


def _break_state(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have vLLM's `init_app_state` raise this."""

    async def init_app_state(*_: Any) -> None:
        raise error

    found = replace(EntryPoints.find(), init_app_state=init_app_state)
    monkeypatch.setattr(EntryPoints, "find", lambda: found)


async def test_stream_ends_with_done(application: BackendApplication) -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    stream = begin(application, "/v1/chat/completions", body)
    text = b"".join([one.body async for one in stream if isinstance(one, ExchangePart)])
    events = text.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    last = json.loads(events[-3].removeprefix("data: "))
    assert last["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_are_reported_with_the_first_one(
    application: BackendApplication, stream: bool
) -> None:
    told: list[Any] = []
    body = {**CHAT, "stream": stream, "max_tokens": 20, "ignore_eos": True}
    async for _ in begin(application, "/v1/chat/completions", body, told):
        pass
    assert told[0][2] < 20
    assert told[-1][2] == 20
    assert told[-1][0] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_that_were_made_before_the_client_left_are_reported(
    application: BackendApplication, instance: RunningInstance, stream: bool
) -> None:
    def made() -> int:
        return int(instance.backend.metrics()["penstock_llm_generation_tokens_total"])

    told: list[Any] = []
    body = {**CHAT, "stream": stream, "max_tokens": 900, "ignore_eos": True}
    before = made()
    answer = begin(application, "/v1/chat/completions", body, told)
    await until(lambda: made() > before + 20, 0.001)
    answer.close()
    await until(lambda: usage(instance) == (0, 0, 0.0), 0.01)
    assert told[-1][2] == made() - before


async def test_times_are_those_of_the_tenant(
    application: BackendApplication, instance: RunningInstance
) -> None:
    sender = Sender("blue", label="blue")
    for stream in (False, True):
        answer = begin(
            application, "/v1/chat/completions", {**CHAT, "stream": stream}, None, sender
        )
        assert [part async for part in answer][-1].final
    await until(lambda: of_blue(instance, "request_seconds")[1] == 2, 0.01)
    assert of_blue(instance, "generated_tokens") == (8, 2)


def of_blue(instance: RunningInstance, name: str) -> tuple[float, int]:
    """Sum and count of a histogram of the tenant `blue`."""
    histograms: Any = instance.backend.histograms()
    histogram = histograms[f'penstock_llm_{name}{{tenant="blue"}}']
    return histogram.total, sum(histogram.state()[1])


async def test_unknown_field_is_refused_with_the_nearest(application: BackendApplication) -> None:
    body = {**CHAT, "temprature": 1}
    status, answer = await whole(begin(application, "/v1/chat/completions", body))
    assert status == 400
    assert answer["error"]["param"] == "temprature"
    assert "did you mean 'temperature'" in answer["error"]["message"]
    ignoring = begin(application, "/v1/chat/completions", body, unknown_fields="ignore")
    assert (await whole(ignoring))[0] == 200


async def test_body_that_is_not_json_is_refused_in_the_form_of_openai(
    application: BackendApplication,
) -> None:
    """NaN, too: as the bias of a token, vLLM takes it."""
    body = {**CHAT, "logit_bias": {"5": float("nan")}}
    status, answer = await whole(begin(application, "/v1/chat/completions", body))
    assert (status, answer["error"]["code"]) == (400, "invalid_json")
    assert answer["error"]["message"] == "the body is not JSON: NaN is not a number of JSON"


async def test_image_is_refused_with_the_name_of_the_model(
    application: BackendApplication,
) -> None:
    """It is not the path of its files, which vLLM would hide behind `<path>`."""
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    body = {**CHAT, "messages": [{"role": "user", "content": parts}]}
    status, answer = await whole(begin(application, "/v1/chat/completions", body))
    assert (status, answer["error"]["message"]) == (400, "m is not a multimodal model")


async def test_tokens_of_a_response_are_not_counted(application: BackendApplication) -> None:
    """The path of a response by its id is another route of vLLM's, with GET."""
    body = {"model": "m", "input": "a"}
    status, answer = await whole(begin(application, "/v1/responses/input_tokens", body))
    assert status == 404
    assert answer["error"]["message"] == "this model does not serve /v1/responses/input_tokens"


async def test_fields_that_ask_for_nothing_are_taken(application: BackendApplication) -> None:
    """Clients of OpenAI's send them to any server."""
    nothing = {"store": False, "service_tier": "auto", "metadata": {"a": "b"}, "nobody": None}
    body = {**CHAT, **nothing}
    assert (await whole(begin(application, "/v1/chat/completions", body)))[0] == 200
    status, answer = await whole(begin(application, "/v1/chat/completions", {**body, "store": 1}))
    assert (status, answer["error"]["param"]) == (400, "store")


@pytest.mark.parametrize("stream", [False, True])
async def test_failure_in_the_engine_says_why(instance: RunningInstance, stream: bool) -> None:
    """vLLM's own error has no text; its cause has."""
    failure = EngineGenerateError()
    failure.__cause__ = RuntimeError("no more of it")
    async with scripted(instance) as (application, model):
        model.error = failure
        asked = begin(application, "/v1/chat/completions", {**CHAT, "stream": stream})
        status, text = await body_of(asked)
    error = json.loads(text.removeprefix("data: "))["error"]
    assert (status, error["type"]) == (200 if stream else 500, "InternalServerError")
    assert error["message"] == "Error generating stream: no more of it"


async def test_adapter_changes_the_answer(application: BackendApplication) -> None:
    body = {"model": "m", "prompt": "The with statement", "max_tokens": 8, "temperature": 0}
    _, plain = await whole(begin(application, "/v1/completions", body))
    other = {**body, "model": "m:loud"}
    _, adapted = await whole(
        begin(application, "/v1/completions", other, adapter="loud", model="m:loud")
    )
    assert plain["choices"][0]["text"] != adapted["choices"][0]["text"]
    assert (plain["model"], adapted["model"]) == ("m", "m:loud")


async def test_unknown_adapter_is_refused(application: BackendApplication) -> None:
    status, answer = await whole(begin(application, "/v1/completions", {}, adapter="lost"))
    error = answer["error"]
    assert (status, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert "LoRA lost is not supported" in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/sleep", "/v1/load_lora_adapter", "/metrics", "/v1/embeddings"])
async def test_other_routes_are_not_shown(application: BackendApplication, path: str) -> None:
    """Those of administrators, and those that the model does not have."""
    status, answer = await whole(begin(application, path, {}))
    assert (status, answer["error"]["type"]) == (404, "not_found_error")


async def test_client_that_leaves_ends_the_generation(
    application: BackendApplication, instance: RunningInstance
) -> None:
    assert isinstance(instance.backend, VllmBackend)
    statistics = instance.backend._engine.statistics
    before = statistics.cancelled
    body = {**CHAT, "stream": True, "max_tokens": 900, "ignore_eos": True}
    stream = begin(application, "/v1/chat/completions", body)
    async for part in stream:
        if isinstance(part, ExchangePart) and b"content" in part.body:
            break
    stream.close()
    await application.close()
    assert statistics.cancelled == before + 1


async def test_answer_is_one_of_the_choices(application: BackendApplication) -> None:
    body = {**CHAT, "max_tokens": 16, "structured_outputs": {"choice": ["iterator", "class"]}}
    _, answer = await whole(begin(application, "/v1/chat/completions", body))
    assert answer["choices"][0]["message"]["content"] in ("iterator", "class")


async def test_tokens_of_a_text_and_back(application: BackendApplication) -> None:
    _, answer = await whole(begin(application, "/tokenize", {"model": "m", "prompt": "def f"}))
    back = {"model": "m", "tokens": answer["tokens"]}
    _, text = await whole(begin(application, "/detokenize", back))
    assert text["prompt"] == "def f"


@pytest.mark.parametrize(
    "how",
    [
        {"structured_outputs": {"regex": "(a{1,100}){1,100}"}},
        {"structured_outputs": {"choice": [str(number) for number in range(20_000)]}},
        {"structured_outputs": {"json": {"type": "string", "pattern": "((x{1,99}){1,99})+"}}},
        {"stop": ["x" * 20_000]},  # more than four it refuses itself
    ],
)
async def test_what_would_keep_the_engine_busy_is_refused(
    application: BackendApplication, how: Any
) -> None:
    status, answer = await whole(begin(application, "/v1/chat/completions", {**CHAT, **how}))
    assert status == 400
    assert re.search("more than|at most 16384", answer["error"]["message"])


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 10**30},
        {"stop_token_ids": [10**30]},
        {"allowed_token_ids": [10**30]},
        {"vllm_xargs": {"x": 10**30}},
        {"structured_outputs": {"json": {"const": 10**30}}},
    ],
)
async def test_value_that_the_engine_cannot_be_told_is_refused(
    application: BackendApplication, fields: Any
) -> None:
    """To vLLM it is an error of its own, with status 500 or none."""
    asked = begin(application, "/v1/chat/completions", {**CHAT, **fields})
    status, answer = await whole(asked)
    assert status == 400
    assert answer["error"]["message"]
    assert (await whole(begin(application, "/v1/chat/completions", CHAT)))[0] == 200


async def test_logprobs_are_refused_where_they_would_crash_the_engine(
    application: BackendApplication, instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(instance.backend, VllmBackend)
    monkeypatch.setattr(instance.backend._engine, "logprobs", False)
    for path, body in (
        ("/v1/chat/completions", {**CHAT, "logprobs": True}),
        ("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1, "logprobs": 1}),
    ):
        status, answer = await whole(begin(application, path, body))
        assert status == 400
        assert "needs a C++ compiler" in answer["error"]["message"]


async def test_tokens_of_all_prompts_are_reported(application: BackendApplication) -> None:
    told: list[Any] = []
    body = {"model": "m", "prompt": ["The with", "The with"], "max_tokens": 3, "ignore_eos": True}
    _, answer = await whole(begin(application, "/v1/completions", body, told))
    used = answer["usage"]
    assert told[-1] == (used["prompt_tokens"], told[-1][1], 6)


async def test_application_describes_what_is_shown_of_it(application: BackendApplication) -> None:
    document = await application.description()
    assert document["info"]["title"] == "vLLM"
    paths = document["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/tokenize"} <= paths.keys()
    assert "/v1/load_lora_adapter" not in paths
    text = json.dumps(document)
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named == document["components"]["schemas"].keys()
    assert "messages" in text


async def _step(instance: RunningInstance) -> None:
    """Until the engine has made a token."""
    metrics, tokens = instance.backend.metrics, "penstock_llm_generation_tokens_total"
    made = metrics()[tokens]
    await until(lambda: metrics()[tokens] > made)


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(
    application: BackendApplication, instance: RunningInstance
) -> None:
    """More than run at once, so some leave while they wait, some in their prompt, some later."""
    assert isinstance(instance.backend, VllmBackend)
    messages = [{"role": "user", "content": "word " * 150}]
    body = {**CHAT, "messages": messages, "stream": True, "max_tokens": 600, "ignore_eos": True}
    streams = [begin(application, "/v1/chat/completions", body) for _ in range(24)]
    for stream in streams:
        await _step(instance)
        stream.close()
    metrics = instance.backend.metrics
    left = ("running_requests", "waiting_requests", "kv_cache_usage")
    await until(lambda: not any(metrics()[f"penstock_llm_{name}"] for name in left))
    status, _ = await whole(begin(application, "/v1/chat/completions", CHAT))
    assert status == 200

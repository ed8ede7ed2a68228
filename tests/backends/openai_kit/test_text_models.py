"""OpenAI's API of a model from text to text, by the tensors that it has."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import openai
import pytest

from backends.generation import until
from backends.openai_kit.scripted import HELLO, http_of
from backends.openai_kit.scripted_tensors import OUTPUT, TEXT, TextModel, taking, text_config
from backends.openai_kit.test_leaving import Client, scope
from penstock.backend import (
    DataType,
    ExhaustedError,
    ModelConfig,
    ModelLoadError,
    Output,
    SequenceBatching,
    Tensor,
)
from penstock.demo.language_model import CHECKPOINT
from penstock_backends.openai_kit.text_models.text_generator import open_application

SAMPLING = taking("sampling_parameters")
LAYOUT = (
    taking("max_tokens", DataType.INT32, needed=True),
    taking("stop_words", DataType.BYTES, -1, needed=True),
    taking("temperature", DataType.FP32),
    taking("random_seed", DataType.UINT64),
    taking("stream", DataType.BOOL),
)
COUNTS = (
    taking("return_num_input_tokens", DataType.BOOL),
    taking("return_num_output_tokens", DataType.BOOL),
    taking("return_finish_reason", DataType.BOOL),
)
COUNTED = (
    Output(name="num_input_tokens", data_type=DataType.UINT32, dims=(1,)),
    Output(name="num_output_tokens", data_type=DataType.UINT32, dims=(-1,)),
)


MOST = 1 << 20
"""Characters of a prompt, and tokens of an answer."""


def saying(content: Any) -> Any:
    return [{"role": "user", "content": content}]


async def chat(model: TextModel, **fields: Any) -> Any:
    async with model.client() as client:
        given: Any = {"model": "m", "messages": HELLO, **fields}
        return await client.chat.completions.create(**given)


async def streamed(model: TextModel, **fields: Any) -> list[Any]:
    async with model.client() as client:
        given: Any = {"model": "m", "messages": HELLO, "stream": True, **fields}
        return [one async for one in await client.chat.completions.create(**given)]


def told(text: str, prompt: int, generated: int) -> dict[str, Tensor]:
    """A response that tells its tokens."""
    return {
        "text_output": Tensor.from_strings([text]),
        "num_input_tokens": Tensor.from_numpy(np.array([prompt], np.uint32)),
        "num_output_tokens": Tensor.from_numpy(np.array([generated], np.uint32)),
    }


@pytest.mark.parametrize(
    "config",
    [
        text_config(taking("question", needed=True)),
        text_config(taking("stream", DataType.INT32, needed=True)),
        text_config(taking("temperature", DataType.FP32, 2, needed=True)),
        replace(text_config(), output=()),
        replace(text_config(), input=(replace(TEXT, data_type=DataType.INT32),)),
        replace(text_config(), output=(replace(OUTPUT, data_type=DataType.FP32),)),
        replace(text_config(), sequence_batching=SequenceBatching()),
    ],
)
def test_a_model_that_needs_what_nobody_asks_for_has_no_application(config: ModelConfig) -> None:
    assert open_application(config, None) is None


async def test_optional_inputs_that_nobody_knows_are_left_out() -> None:
    model = TextModel(text_config(taking("image"), taking("return_logits", DataType.BOOL)))
    assert (await chat(model)).choices[0].message.content == "Hello you"
    assert model.inputs() == {"text_input": ["hello"]}


async def test_parameters_go_where_the_model_has_an_input_for_them() -> None:
    model = TextModel(text_config(SAMPLING, taking("temperature", DataType.FP32)))
    await chat(model, temperature=0.5, stop="x", max_tokens=3, seed=7, n=1)
    given = model.inputs()
    assert given["temperature"] == [0.5]
    (rest,) = given["sampling_parameters"]
    assert json.loads(rest) == {"stop": ["x"], "max_tokens": 3, "seed": 7}


async def test_inputs_of_the_layout_are_filled_in() -> None:
    model = TextModel(text_config(*LAYOUT, batch=4))
    await chat(model, temperature=0.5, seed=1 << 40, stop=["a", "b"], max_tokens=3)
    assert model.inputs() == {
        "text_input": ["hello"],
        "stream": [False],
        "max_tokens": [3],
        "temperature": [0.5],
        "random_seed": [1 << 40],
        "stop_words": ["a", "b"],
    }
    assert {one.shape for one in model.asked[0].inputs.values()} == {(1, 1), (1, 2)}
    await chat(model)
    assert (model.inputs()["max_tokens"], model.inputs()["stop_words"]) == ([16], [""])


@pytest.mark.parametrize(("decoupled", "wanted"), [(True, [True]), (False, [False])])
async def test_a_stream_is_asked_for_where_there_can_be_one(
    decoupled: bool, wanted: list[bool]
) -> None:
    model = TextModel(text_config(*LAYOUT, decoupled=decoupled))
    chunks = await streamed(model)
    assert [one.choices[0].delta.content for one in chunks] == ["", "Hello", " you", None]
    assert model.inputs()["stream"] == wanted


async def test_fields_that_ask_for_nothing_need_no_input() -> None:
    model = TextModel(text_config())
    await chat(model, temperature=1, top_p=1, n=1, presence_penalty=0, stop=[])
    assert model.inputs() == {"text_input": ["hello"]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("temperature", 0.5),
        ("top_p", 0.5),
        ("max_tokens", 3),
        ("stop", ["x"]),
        ("seed", 1),
        ("response_format", {"type": "json_object"}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ],
)
async def test_what_a_model_cannot_take_is_refused_by_name(field: str, value: Any) -> None:
    model = TextModel(text_config())
    with pytest.raises(openai.BadRequestError, match=f"'{field}' (is|are) not supported") as found:
        await chat(model, **{field: value})
    assert (found.value.param, model.asked) == (field, [])


@pytest.mark.parametrize(
    ("config", "fields", "complaint"),
    [
        (text_config(SAMPLING), {"n": 2}, "'n' is not supported"),
        (text_config(SAMPLING), {"logprobs": True}, "'logprobs' is not supported"),
        (text_config(*LAYOUT), {"seed": -1}, "'seed' is too large or too small"),
        (text_config(*LAYOUT), {"temperature": 1e39}, "'temperature' is too large or too small"),
        (text_config(taking("stop_words")), {"stop": ["a", "b"]}, "'stop' may be one text only"),
        (text_config(), {"extra_body": {"return_token_ids": True}}, "'return_token_ids' is not"),
    ],
)
async def test_what_no_input_can_hold_is_refused_by_name(
    config: ModelConfig, fields: Any, complaint: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=complaint):
        await chat(TextModel(config), **fields)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"prompt": [1, 2]}, "must hold texts"),
        ({"prompt": ["a", ""]}, "the prompt is empty"),
        ({"prompt": "a", "logprobs": 1}, "'logprobs' is not supported"),
        ({"prompt": "a", "extra_body": {"add_special_tokens": False}}, "'add_special_tokens' is"),
    ],
)
async def test_completions_of_what_is_no_text_are_refused(fields: Any, complaint: str) -> None:
    async with TextModel(text_config()).client() as client:
        with pytest.raises(openai.BadRequestError, match=complaint):
            await client.completions.create(model="m", **fields)


@pytest.mark.parametrize(
    ("path", "fields", "complaint"),
    [
        ("/v1/completions", {"prompt": "a" * (MOST + 1)}, f"'prompt' has {MOST + 1} characters"),
        ("/v1/chat/completions", {"messages": saying("a" * (MOST + 1))}, "the prompt is longer"),
        ("/v1/chat/completions", {"messages": saying([0] * MOST)}, f"hold {MOST + 1} messages"),
        ("/v1/responses", {"input": [0] * (MOST + 1)}, f"hold {MOST + 1} messages"),
        ("/detokenize", {"tokens": [0] * (MOST + 1)}, f"'tokens' holds {MOST + 1}"),
    ],
)
async def test_limits_of_prompts_are_told_in_characters(
    path: str, fields: Any, complaint: str
) -> None:
    model = TextModel(text_config(), tokenizer=CHECKPOINT)
    async with http_of(model.app()) as http:
        answer = await http.post(path, json={"model": "m", **fields})
    message = answer.json()["error"]["message"]
    assert (answer.status_code, complaint in message) == (400, True)
    assert message.endswith(f"the {MOST} characters that this model is given at most")


async def test_the_limit_of_an_answer_is_no_context() -> None:
    model = TextModel(text_config(SAMPLING))
    with pytest.raises(openai.BadRequestError, match=f"must be from 1 to {MOST}, not") as found:
        await chat(model, max_tokens=MOST + 1)
    assert "context" not in found.value.message


async def test_responses_name_their_own_fields() -> None:
    async with TextModel(text_config()).client() as client:
        with pytest.raises(openai.BadRequestError, match="'max_output_tokens' is not supported"):
            await client.responses.create(model="m", input="hello", max_output_tokens=16)


async def test_the_servers_default_length_asks_nothing_of_a_model_without_one() -> None:
    model = TextModel(text_config(), parameters={"default_length": True, "own": "kept"})
    await chat(model, max_completion_tokens=16)
    assert (model.inputs(), model.asked[0].parameters) == (
        {"text_input": ["hello"]},
        {"own": "kept"},
    )


@pytest.mark.contract("OA-15")
async def test_messages_are_joined_by_their_roles() -> None:
    model = TextModel(text_config())
    system: Any = {"role": "system", "content": "Be short."}
    await chat(model, messages=[system, *HELLO])
    assert model.inputs()["text_input"] == ["system: Be short.\nuser: hello\nassistant:"]


@pytest.mark.contract("OA-15")
async def test_the_template_of_the_tokenizer_makes_the_prompt() -> None:
    model = TextModel(text_config(), tokenizer=CHECKPOINT)
    usage = (await chat(model)).usage
    assert model.inputs()["text_input"] == ["<|user|>hello<|assistant|>"]
    assert usage.prompt_tokens > 3
    assert model.reported == [(usage.prompt_tokens, 0, usage.completion_tokens)]
    options = {"include_usage": True}
    assert (await streamed(model, stream_options=options))[-1].usage == usage


async def test_tokens_that_the_model_tells_count() -> None:
    texts = [told("Hello", 9, 2), told(" you", 9, 1)]
    model = TextModel(text_config(*COUNTS, SAMPLING, outputs=COUNTED), texts)
    answer = await chat(model, max_tokens=3)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 3)
    assert answer.choices[0].finish_reason == "length"
    assert model.reported == [(9, 0, 3)]
    given = model.inputs()
    assert given["return_num_input_tokens"] == given["return_num_output_tokens"] == [True]
    assert "return_finish_reason" not in given


async def test_the_model_says_why_it_ended() -> None:
    reasons = [Tensor.from_strings([one]) for one in ("None", "content_filter")]
    texts = [{"text_output": Tensor.from_strings(["x"]), "finish_reason": one} for one in reasons]
    answer = await chat(TextModel(text_config(), texts))
    assert answer.choices[0].finish_reason == "content_filter"


async def test_a_reason_that_openai_does_not_know_is_left_out() -> None:
    text = {
        "text_output": Tensor.from_strings(["x"]),
        "finish_reason": Tensor.from_strings(["odd"]),
    }
    answer = await chat(TextModel(text_config(), [text]))
    assert answer.choices[0].finish_reason == "stop"


async def test_a_count_below_zero_is_none() -> None:
    text = told("x", 3, 0) | {"num_output_tokens": Tensor.from_numpy(np.array([-5], np.int32))}
    assert (await chat(TextModel(text_config(), [text]))).usage is None


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (Tensor.from_numpy(np.ones(1, np.float32)), "FP32 in output 'text_output'"),
        (Tensor.from_strings(["a", "b"]), "2 texts in output 'text_output' of one response"),
    ],
)
async def test_an_output_that_is_not_one_text_is_the_models_fault(
    output: Tensor, complaint: str
) -> None:
    with pytest.raises(openai.InternalServerError, match=complaint):
        await chat(TextModel(text_config(), [{"text_output": output}]))


@pytest.mark.contract("OA-15")
async def test_usage_is_left_out_where_nobody_counts() -> None:
    model = TextModel(text_config())
    assert (await chat(model)).usage is None
    chunks = await streamed(model, stream_options={"include_usage": True})
    assert [one.usage for one in chunks if one.usage] == []
    async with model.client() as client:
        assert (await client.responses.create(model="m", input="hello")).usage is None
        assert (await client.completions.create(model="m", prompt="hello")).usage is None
    assert model.reported == []


async def test_texts_that_accumulate_are_told_once() -> None:
    config = text_config(parameters={"accumulate_tokens": "true"})
    chunks = await streamed(TextModel(config, ("Hel", "Hello", "Hello you")))
    assert [one.choices[0].delta.content for one in chunks] == ["", "Hel", "lo", " you", None]


async def test_a_character_may_be_cut_between_responses() -> None:
    cut = "ü".encode()
    chunks = await streamed(TextModel(text_config(), (b"f" + cut[:1], cut[1:] + b"r", cut[:1])))
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == "für\ufffd"


async def test_tokens_of_an_answer_that_was_left_are_counted() -> None:
    model = TextModel(text_config(), endless=True, tokenizer=CHECKPOINT)
    client = Client({"model": "m", "messages": HELLO, "stream": True})
    app = model.app()
    serving = asyncio.ensure_future(app(scope("/v1/chat/completions"), client.receive, client.send))
    await until(lambda: b" you" in b"".join(one.get("body", b"") for one in client.sent))
    client.left.set()
    await asyncio.wait_for(serving, 20)
    ((_, _, generated),) = model.reported
    assert generated >= 2
    assert model.streams[0].ended


ASKED: Any = [
    ("/v1/chat/completions", {"messages": HELLO}),
    ("/v1/completions", {"prompt": ["a", "b"]}),
    ("/v1/responses", {"input": "a"}),
]


@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_a_failure_before_the_first_text_of_a_stream_is_its_status(
    path: str, body: Any
) -> None:
    model = TextModel(text_config(), ["", ExhaustedError("the queue is full")])
    async with http_of(model.app()) as http:
        answer = await http.post(path, json={"model": "m", "stream": True, **body})
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert all(stream.ended for stream in model.streams)


async def test_a_failure_after_the_first_text_of_a_stream_is_an_event() -> None:
    with pytest.raises(openai.APIError, match="the queue is full"):
        await streamed(TextModel(text_config(), ["Hello", ExhaustedError("the queue is full")]))


@pytest.mark.parametrize(("path", "body"), ASKED)
async def test_a_client_that_leaves_before_the_first_text_ends_the_request(
    path: str, body: Any
) -> None:
    model = TextModel(text_config(), [], endless=True)
    client = Client({"model": "m", "stream": True, **body})
    serving = asyncio.ensure_future(model.app()(scope(path), client.receive, client.send))
    await until(lambda: bool(model.streams))
    client.left.set()
    await asyncio.wait_for(serving, 20)
    assert [stream.ended for stream in model.streams] == [True] * len(model.streams)
    assert client.sent == []


@pytest.mark.parametrize("name", ["missing.json", "config.json"])
def test_a_tokenizer_that_is_none_refuses_the_model(name: str) -> None:
    with pytest.raises(ModelLoadError, match=f"{name} is not a tokenizer"):
        open_application(text_config(), CHECKPOINT / name)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/v1/responses/input_tokens"])
async def test_tokens_are_served_where_there_is_a_tokenizer(path: str) -> None:
    async with TextModel(text_config()).client() as client:
        with pytest.raises(openai.NotFoundError, match="does not serve"):
            await client.post(f"http://model{path}", cast_to=object, body={"model": "m"})

"""Pooling models with the real engine: random ones, made here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from backends.exchanging import application, whole
from backends.generation import plain, token_ids
from backends.vllm.real.conftest import IN_CORE
from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import InferenceRequest, RequestScope
from penstock.demo.language_model import CHECKPOINT
from penstock.testing import RunningInstance, running
from penstock_backends.vllm import VllmBackend

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {
    **IN_CORE,
    "model": "model",
    "runner": "pooling",
    "dtype": "float32",
    "enforce_eager": True,
    "gpu_memory_utilization": 0.1,
    "max_model_len": 128,
    "max_num_seqs": 8,
}
JSON_BODY = (("content-type", "application/json"),)
NAMES = ("embed", "classify", "rerank")


def write_model(folder: Path, name: str) -> None:
    """A BERT without training, with the demo's tokenizer."""
    transformers = import_module("transformers")
    import_module("torch").manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=4096,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=128,
        num_labels={"embed": 2, "classify": 3, "rerank": 1}[name],
    )
    kind = "BertModel" if name == "embed" else "BertForSequenceClassification"
    getattr(transformers, kind)(config).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / file).write_bytes((CHECKPOINT / file).read_bytes())


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=NAMES)
async def model(
    request: Any, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[str, RunningInstance]]:
    version = tmp_path_factory.mktemp(request.param)
    write_model(version / "model", request.param)
    (version / "model.json").write_text(json.dumps(SETTINGS))
    async with running(VllmBackend, ModelConfig(name="m"), version) as instance:
        yield request.param, instance


async def ask(instance: RunningInstance, **inputs: Any) -> dict[str, Any]:
    (response,) = [response async for response in instance.infer(inputs)]
    assert response.final
    return plain(response)


def embedding_request(content: Any, **more: Any) -> str:
    return json.dumps({"input": content, **more})


@pytest.mark.contract("VL-12")
async def test_an_embedding_is_a_json_list(model: tuple[str, RunningInstance]) -> None:
    name, instance = model
    if name == "embed":
        text = embedding_request("hello world", pooling_params={})
        reply = await ask(
            instance, text_input="", embedding_request=text, return_num_input_tokens=True
        )
        vector = json.loads(reply["text_output"][0])
        assert len(vector) == 64
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-4)
        tensors = await ask(instance, text_input="hello world")
        assert tensors == {"EMBEDDING": pytest.approx(vector, abs=1e-5)}
        ids = await ask(instance, embedding_request=embedding_request([5, 6, 7]))
        by_ids = await ask(instance, input_ids=token_ids(5, 6, 7))
        assert json.loads(ids["text_output"][0]) == pytest.approx(by_ids["EMBEDDING"], abs=1e-5)
        assert reply["num_input_tokens"][0] > 0
    else:
        with pytest.raises(InvalidRequestError, match="Model m does not support 'embed' request"):
            await ask(instance, embedding_request=embedding_request("hello"))


async def test_classes_have_probabilities(model: tuple[str, RunningInstance]) -> None:
    name, instance = model
    reply = await ask(instance, text_input="hello world")
    outputs = {"embed": ["EMBEDDING"], "classify": ["CLASS_PROBS"]}
    assert list(reply) == outputs.get(name, ["CLASS_PROBS", "SCORE"])
    if name == "classify":
        assert len(reply["CLASS_PROBS"]) == 3
        assert sum(reply["CLASS_PROBS"]) == pytest.approx(1, abs=1e-4)


async def test_pairs_of_texts_have_scores(model: tuple[str, RunningInstance]) -> None:
    name, instance = model
    asked = {"text_input": "hello world", "text_pair": ["hello world", "return the list"]}
    if name == "classify":
        with pytest.raises(InvalidRequestError, match="needs a model with one class"):
            await ask(instance, **asked)
    else:
        same, other = (await ask(instance, **asked))["SCORE"]
        assert same != other
        assert -1 <= other <= 1.0001
        assert name != "embed" or same == pytest.approx(1, abs=1e-4)


async def test_text_is_refused_in_tritons_words(model: tuple[str, RunningInstance]) -> None:
    with pytest.raises(InvalidRequestError, match="Model m does not support 'generate' request"):
        await ask(model[1], text_input="hello", stream=True)


async def test_outputs_of_another_task_are_refused(model: tuple[str, RunningInstance]) -> None:
    name, instance = model
    output, task = ("CLASS_PROBS", "classify") if name == "embed" else ("EMBEDDING", "embed")
    asked = instance.infer({"text_input": "a"}, requested_outputs=(output,))
    with pytest.raises(InvalidRequestError, match=f"Model m does not support '{task}' request"):
        [response async for response in asked]


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({"text_input": "word " * 500}, "maximum context length"),
        ({"input_ids": token_ids(1 << 20)}, "holds 1048576, but the model's token ids are"),
        ({"text_input": ""}, "the prompt is empty"),
        ({"text_input": "a", "text_pair": ["x" * 10_000_000]}, "1000000[01] characters"),
        ({"text_input": "a", "text_pair": ["b"] * 2000}, "holds 2000 texts, more than 1024"),
        ({"text_input": "a", "image_url": ["data:image/png;base64,AA=="]}, "m takes no image"),
    ],
)
async def test_bad_input_is_refused_and_the_engine_lives(
    model: tuple[str, RunningInstance], inputs: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await ask(model[1], **inputs)
    assert await ask(model[1], text_input="hello")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "'input' must be a text or a list of token ids"),
        (embedding_request([1 << 70]), "holds a number that is no token id"),
        (embedding_request("a", pooling_params={"dimensions": [0]}), "must be positive"),
        (embedding_request("a", pooling_params={"depth": 1}), "'depth' is not supported"),
        (embedding_request("a", pooling_params={"dimensions": [8]}), "Matryoshka"),
    ],
)
async def test_a_malformed_embedding_request_is_refused(
    model: tuple[str, RunningInstance], text: str, why: str
) -> None:
    name, instance = model
    expected = why if name == "embed" else "Model m does not support 'embed' request"
    with pytest.raises(InvalidRequestError, match=expected):
        await ask(instance, embedding_request=text)


TEXTS: Any = {"input": ["a list", "a class of things"]}
SCORED: Any = {"text_1": "a", "text_2": ["a list", "a class of things"]}
RANKED: Any = {"query": "a", "documents": ["a list", "a class of things"]}
ASKED: dict[str, dict[str, Any]] = {
    "embed": {"/v1/embeddings": TEXTS, "/pooling": TEXTS, "/v1/score": SCORED},
    "classify": {"/classify": TEXTS},
    "rerank": {
        **dict.fromkeys(("/v1/rerank", "/v2/rerank", "/rerank"), RANKED),
        **dict.fromkeys(("/v1/score", "/score"), SCORED),
    },
}
"""The routes that each kind of model has, with a request of two texts."""


async def test_routes_answer_and_tokens_of_exchanges_are_reported(
    model: tuple[str, RunningInstance],
) -> None:
    name, instance = model
    async with application(instance.backend) as app:
        for path, body in ASKED[name].items():
            told: list[tuple[int, int, int]] = []
            exchange = HttpExchange(
                "POST", path, "", JSON_BODY, json.dumps({"model": "m", **body}).encode()
            )
            request = InferenceRequest(
                "m", exchange=exchange, scope=RequestScope(report_usage=partial(_add, told))
            )
            status, text = await whole(app.answer(request))
            assert status == 200, (path, text)
            answer = json.loads(text)
            assert len(answer.get("data", answer.get("results"))) == 2, path
            assert told[-1] == (answer["usage"]["prompt_tokens"], 0, 0), path


def _add(told: list[tuple[int, int, int]], *tokens: int) -> None:
    told.append(tokens)  # type: ignore[arg-type]

"""The tokens of an encoder's texts: as the model reports them, else as a tokenizer counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from backends.openai_kit.scripted import client_of
from backends.openai_kit.scripted_tensors import knowing
from fakes import model_config
from penstock.core.config import Input, ModelConfig, Output
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.demo.language_model import CHECKPOINT
from penstock_backends.openai_kit.tensor_encoder import (
    TensorEncoder,
    has_vectors,
    open_application,
)

TEXTS = ["red", "green blue"]


def config(most: int) -> ModelConfig:
    return replace(model_config(), max_batch_size=most)


def answering(tokens: int | None, output: str = "OUT") -> Any:
    """A model's inference that reports so many tokens for each request, or none."""

    def infer(request: InferenceRequest) -> ResponseStream:
        rows = next(iter(request.inputs.values())).shape[0]
        if tokens is not None:
            assert request.scope.report_usage is not None
            request.scope.report_usage(tokens, 0, 0)
        stream = ResponseStream()
        vectors = Tensor.from_numpy(np.ones((rows, 3), np.float32))
        stream.send(InferenceResponse({output: vectors}, final=True))
        return stream

    return infer


def words(texts: Sequence[str]) -> int:
    return sum(len(text.split()) for text in texts)


@pytest.mark.parametrize(("most", "requests"), [(8, 1), (1, 2)])
@pytest.mark.parametrize(
    ("reported", "count", "each"), [(40, words, 40), (40, None, 40), (None, None, 0)]
)
async def test_tokens_are_those_that_the_model_reports(
    most: int, requests: int, reported: int | None, count: Any, each: int
) -> None:
    encoder = TensorEncoder(config(most), count)
    known = {"infer": answering(reported), "request": InferenceRequest("m")}
    found = await encoder.embed(TEXTS, known)
    assert (found.rows.shape, found.tokens) == ((2, 3), requests * each)


@pytest.mark.parametrize("most", [8, 1])
async def test_tokens_are_counted_where_the_model_reports_none(most: int) -> None:
    """As of an answer that comes from the response cache."""
    known = {"infer": answering(None), "request": InferenceRequest("m")}
    assert (await TensorEncoder(config(most), words).embed(TEXTS, known)).tokens == 3


async def test_tokens_are_counted_by_the_tokenizer_that_is_named() -> None:
    texts = Input(name="TEXT", data_type=DataType.BYTES, dims=(1,))
    vectors = Output(name="EMBEDDING", data_type=DataType.FP32, dims=(3,))
    given = ModelConfig(name="m", max_batch_size=8, input=(texts,), output=(vectors,))
    app = open_application(given, CHECKPOINT)
    assert app is not None
    known = {"infer": answering(None, "EMBEDDING"), "request": InferenceRequest("m")}
    async with client_of(knowing(app, known)) as client:
        answer = await client.embeddings.create(model="m", input=TEXTS)
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    wanted = sum(len(tokenizer.encode(text).ids) for text in TEXTS)
    assert answer.usage.prompt_tokens == wanted > 0


@pytest.mark.parametrize(
    ("datatype", "dims", "most", "has"),
    [
        (DataType.FP32, (3,), 8, True),
        (DataType.FP16, (-1, 3), 0, True),
        (DataType.INT32, (3,), 8, False),
        (DataType.BYTES, (-1, 3), 0, False),
        (DataType.FP32, (2, 3), 8, False),
        (DataType.FP32, (3,), 0, False),
    ],
)
def test_vectors_are_floats_with_one_dimension_for_each_row(
    datatype: DataType, dims: tuple[int, ...], most: int, has: bool
) -> None:
    output = Output(name="OUT", data_type=datatype, dims=dims)
    assert has_vectors(ModelConfig(name="m", max_batch_size=most, output=(output,))) is has

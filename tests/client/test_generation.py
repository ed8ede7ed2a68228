"""Inputs and parameters of a prompt with its options, by the tensors that a model has."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_client.client.generation import prompt_inputs
from penstock_client.reading.views import ModelMetadata, TensorMetadata

PROMPT = {"text_input": "a"}


def metadata(*inputs: str) -> ModelMetadata:
    tensors = [TensorMetadata(name, "BYTES", (1,)) for name in ("text_input", *inputs)]
    return ModelMetadata("m", ("1",), "", tuple(tensors), ())


@pytest.mark.parametrize(
    ("known", "inputs", "parameters"),
    [
        ([], {}, {"max_tokens": 4}),
        (["max_tokens"], {"max_tokens": 4}, {}),
        (["sampling_parameters"], {"sampling_parameters": '{"max_tokens": 4}'}, {}),
        (["sampling_param_max_tokens"], {"sampling_param_max_tokens": 4}, {}),
        (["stream", "max_tokens"], {"stream": True, "max_tokens": 4}, {}),
    ],
)
def test_an_option_goes_where_the_model_takes_it(
    known: list[str], inputs: dict[str, Any], parameters: dict[str, Any]
) -> None:
    found = prompt_inputs(metadata(*known), "a", {"max_tokens": 4})
    assert found == (PROMPT | inputs, parameters)

"""The examples of the page on models in Python run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from backends.python.scripted import FakeReply
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.tensor import Tensor as CoreTensor
from penstock.model import Model, Request
from penstock_backends.python.pb_utils.api import InferenceRequest, ModelConfig
from penstock_backends.python.pb_utils.modules import MODULES, install_modules
from penstock_backends.python.process.asyncio_config import completed_config, find_model

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "python-models.md"


@pytest.fixture
def examples() -> Iterator[list[str]]:
    """The pieces of Python on the page; what they import is there."""
    install_modules()
    yield re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    for name in MODULES:
        del sys.modules[name]


def run(code: str, **names: Any) -> ModuleType:
    module = ModuleType("model")
    module.__dict__.update(names)
    exec(code, module.__dict__)
    return module


def request(value: CoreTensor, reply: FakeReply) -> InferenceRequest:
    return InferenceRequest.received(CoreRequest("m", inputs={"IN": value}), reply)


def asyncio_model(code: str) -> type[Model]:
    found = find_model(run(code))
    assert found is not None
    return found


def configuration(cls: Any) -> dict[str, Any]:
    config: dict[str, Any] = cls.auto_complete_config(ModelConfig('{"name": "m"}')).as_dict()
    return config


def test_both_forms_double_the_numbers(examples: list[str]) -> None:
    numbers = np.array([1.0, 2.0], np.float32)
    first = run(examples[0]).TritonPythonModel()
    first.initialize({})
    (response,) = first.execute([request(CoreTensor.from_numpy(numbers), FakeReply())])
    assert response.output_tensors()[0].as_numpy().tolist() == [2.0, 4.0]
    run(examples[4], **run(examples[1]).__dict__)  # has an assertion of its own


def test_triton_form_streams_the_words(examples: list[str]) -> None:
    reply = FakeReply("OUT", decoupled=True)
    run(examples[2]).TritonPythonModel().execute(
        [request(CoreTensor.from_strings(["to be"]), reply)]
    )
    sent = [response.output_tensors()[0].as_numpy()[0] for response in reply.responses]
    assert (sent, reply.closed) == ([b"to", b"be"], True)


async def test_asyncio_form_streams_the_words(examples: list[str]) -> None:
    stream: Any = asyncio_model(examples[3])().infer(Request.of({"IN": "to be"}))
    assert [response.text("OUT") async for response in stream] == ["to", "be"]


@pytest.mark.parametrize("pair", [0, 2])
def test_both_forms_declare_the_same_configuration(examples: list[str], pair: int) -> None:
    first = configuration(run(examples[pair]).TritonPythonModel)
    assert completed_config(asyncio_model(examples[pair + 1]), {"name": "m"}) == first

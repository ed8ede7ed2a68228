"""Text models of every make for tests: in Python, decoupled or not, a pipeline and an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Final

from penstock.demo.language_model import CHECKPOINT

SHOUT: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
        text = given.ravel()[0].decode().upper().encode()
        output = pb_utils.Tensor("text_output", np.array([text], object).reshape(given.shape))
        return pb_utils.InferenceResponse([output])
"""
"""Not decoupled: the text in capitals."""

WORDS: Final = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.answer(request, request.get_response_sender())

    def answer(self, request, sender):
        text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
        given = pb_utils.get_input_tensor_by_name(request, "sampling_parameters").as_numpy()[0]
        most = json.loads(given).get("max_tokens", 100)
        for number, word in enumerate(text.split()[:most]):
            output = np.array([(" " if number else "") + word], object)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", output)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
"""Decoupled: the words of the text, as many as `max_tokens`."""

TALK: Final = """
import asyncio
from collections.abc import AsyncIterator

from penstock.model import DataType, Input, Model, ModelConfig, Output, Request, Response


class Talk(Model):
    config = ModelConfig(
        input=(Input("text_input", DataType.BYTES, dims=(1,)),),
        output=(Output("text_output", DataType.BYTES, dims=(1,)),),
    )

    async def infer(self, request: Request) -> AsyncIterator[Response]:
        text = request.text("text_input")
        if text == "fail":
            raise ValueError("no such text")
        yield Response({"text_output": "You say: "})
        if text == "wait":
            await asyncio.Event().wait()
        yield Response({"text_output": text})
"""
"""With asyncio: what it was told, in two pieces."""

RAG: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils

PASSAGES = ["The file is open.", "A list has no end.", "The name of a module is a string."]


class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            await self.answer(request, request.get_response_sender())

    async def answer(self, request, sender):
        question = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0]
        texts = np.array([[question], *([text.encode()] for text in PASSAGES)], object)
        call = pb_utils.InferenceRequest(
            model_name="minilm",
            requested_output_names=["EMBEDDING"],
            inputs=[pb_utils.Tensor("TEXT", texts)],
            trace=request.trace(),
        )
        found = await call.async_exec()
        if found.has_error():
            raise pb_utils.TritonModelException(found.error().message())
        rows = pb_utils.get_output_tensor_by_name(found, "EMBEDDING").as_numpy()
        nearest = PASSAGES[int(np.argmax(rows[1:] @ rows[0]))]
        await self.generate(nearest.encode() + b" " + question, request, sender)

    async def generate(self, prompt, request, sender):
        inputs = [pb_utils.Tensor("text_input", np.array([prompt], object))]
        for name in ("stream", "sampling_parameters", "exclude_input_in_output"):
            inputs.append(pb_utils.get_input_tensor_by_name(request, name))
        call = pb_utils.InferenceRequest(
            model_name="tiny_llm",
            requested_output_names=["text_output"],
            inputs=inputs,
            trace=request.trace(),
        )
        async for response in await call.async_exec(decoupled=True):
            if response.has_error():
                sender.send(pb_utils.InferenceResponse(error=response.error()))
            elif output := pb_utils.get_output_tensor_by_name(response, "text_output"):
                sender.send(pb_utils.InferenceResponse([output]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
"""A pipeline: the passage that is nearest to a question stands before it in a model's prompt."""

_TEXT: Final = """
input { name: "text_input" data_type: TYPE_STRING dims: 1 }
output { name: "text_output" data_type: TYPE_STRING dims: 1 }
"""
_ENGINE: Final = """
input { name: "stream" data_type: TYPE_BOOL dims: 1 optional: true }
input { name: "sampling_parameters" data_type: TYPE_STRING dims: 1 optional: true }
input { name: "exclude_input_in_output" data_type: TYPE_BOOL dims: 1 optional: true }
"""
_DECOUPLED: Final = "model_transaction_policy { decoupled: true }\n"
_OWN_TOKENIZER: Final = """
parameters { key: "penstock.openai_tokenizer" value { string_value: "own/tokenizer.json" } }
"""
_STEPS: Final = """
ensemble_scheduling {
  step {
    model_name: "trim" model_version: -1
    input_map { key: "text_input" value: "text_input" }
    output_map { key: "text_output" value: "trimmed" }
  }
  step {
    model_name: "tiny_llm" model_version: -1
    input_map { key: "text_input" value: "trimmed" }
    input_map { key: "stream" value: "stream" }
    input_map { key: "sampling_parameters" value: "sampling_parameters" }
    input_map { key: "exclude_input_in_output" value: "exclude_input_in_output" }
    output_map { key: "text_output" value: "text_output" }
  }
}
"""
_PYTHON: Final = 'backend: "python"\n'
_MODELS: Final = {
    "shout": (_PYTHON + _TEXT, SHOUT),
    "trim": (_PYTHON + _TEXT, SHOUT.replace("upper", "strip")),
    "words": (_PYTHON + _TEXT + _ENGINE + _DECOUPLED, WORDS),
    "talk": (_PYTHON + _OWN_TOKENIZER, TALK),
    "rag": (_PYTHON + _TEXT + _ENGINE + _DECOUPLED, RAG),
    "chain": ('platform: "ensemble"\n' + _TEXT + _ENGINE + _STEPS, ""),
}

NAMES: Final[Sequence[str]] = tuple(_MODELS)


def write_text_models(repository: Path) -> None:
    """Write them all; `rag` and `chain` need the demo's `tiny_llm`, `rag` its `minilm`, too.

    `talk` has a tokenizer of its own, without a template.
    """
    for name, (config, code) in _MODELS.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(config)
        if code:
            (version / "model.py").write_text(code)
    (repository / "talk" / "own").mkdir()
    copyfile(CHECKPOINT / "tokenizer.json", repository / "talk" / "own" / "tokenizer.json")

"""Prompts as requests: tensors of Triton's language models, and bodies of OpenAI's endpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.core.tensor import DataType, Tensor
from penstock_client.perf.errors import PerfError
from penstock_client.perf.load.job import Payload
from penstock_client.perf.requests.prompts import Prompt
from penstock_client.perf.requests.tensors import Step
from penstock_client.perf.server import ModelInfo
from penstock_client.perf.wire import http
from penstock_client.perf.wire.endpoint import Endpoint

CHAT, COMPLETIONS, EMBEDDINGS = "chat", "completions", "embeddings"
OPENAI_PATHS = {
    CHAT: "/v1/chat/completions",
    COMPLETIONS: "/v1/completions",
    EMBEDDINGS: "/v1/embeddings",
}


def prompt_steps(model: ModelInfo, prompts: Sequence[Prompt], streamed: bool) -> list[Step]:
    """The inputs of a language model as Triton's vLLM backend has them, or TensorRT-LLM's.

    A model with one input of strings gets the prompts in that.
    """
    names = {each.name for each in model.inputs}
    texts = [each.name for each in model.inputs if each.datatype == "BYTES"]
    text = "text_input" if "text_input" in names else texts[0] if len(texts) == 1 else ""
    if not text:
        raise PerfError(f"model '{model.name}' takes no prompts: it has no input 'text_input'")
    return [_step(model, text, names, prompt, streamed) for prompt in prompts]


def _step(model: ModelInfo, text: str, names: set[str], prompt: Prompt, streamed: bool) -> Step:
    step = {text: Tensor.from_strings([prompt.text])}
    if "stream" in names:
        step["stream"] = Tensor.from_numpy(np.array([streamed]))
    if not prompt.output_tokens:
        return step
    if "sampling_parameters" in names:
        # The fewest, too, so that all answers are as long as is asked for.
        sampling = {"max_tokens": prompt.output_tokens, "min_tokens": prompt.output_tokens}
        step["sampling_parameters"] = Tensor.from_strings([json.dumps(sampling)])
    elif (info := model.input("max_tokens")) is not None:
        datatype = DataType(info.datatype)
        count = np.array([prompt.output_tokens], datatype.numpy)
        step["max_tokens"] = Tensor.from_numpy(count, datatype)
    else:
        raise PerfError(f"model '{model.name}' takes no number of tokens: leave out the option")
    return step


def openai_payloads(
    endpoint: Endpoint,
    model: str,
    prompts: Sequence[Prompt],
    *,
    kind: str,
    streamed: bool,
    headers: Mapping[str, str],
    extra: Mapping[str, Any],
    prefix: str,
) -> list[Payload]:
    """Bodies for one of OpenAI's endpoints; `extra` fields stand in each of them."""
    path = OPENAI_PATHS[kind]
    if prefix.endswith("/v1"):  # a base URL as OpenAI's own client takes it
        prefix = prefix.removesuffix("/v1")
    head = http.request_head(endpoint, prefix + path, headers, "application/json")
    return [
        Payload(head, json.dumps({**_body(model, prompt, kind, streamed), **extra}).encode())
        for prompt in prompts
    ]


def _body(model: str, prompt: Prompt, kind: str, streamed: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model}
    if kind == EMBEDDINGS:
        return {**body, "input": prompt.text}
    if kind == CHAT:
        body["messages"] = [{"role": "user", "content": prompt.text}]
    else:
        body["prompt"] = prompt.text
    if prompt.output_tokens:
        body["max_tokens"] = prompt.output_tokens
    if streamed:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body

"""Requests for a stream of tokens, as each wire wants them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb

COALESCE = "penstock_coalesce"


def grpc_request(
    model: str, prompt: str, sampling: Mapping[str, Any], *, coalesce: bool = True
) -> pb.ModelInferRequest:
    """For `ModelStreamInfer`."""
    message = pb.ModelInferRequest(model_name=model)
    tensors = {
        "text_input": Tensor.from_strings([prompt]),
        "stream": Tensor.from_numpy(np.array([True])),
        "sampling_parameters": Tensor.from_strings([json.dumps(sampling)]),
    }
    for name, tensor in tensors.items():
        message.inputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        message.raw_input_contents.append(bytes(tensor.buffer))
    if not coalesce:
        message.parameters[COALESCE].bool_param = False
    return message


def sse_body(prompt: str, sampling: Mapping[str, Any], *, coalesce: bool = True) -> bytes:
    """For `generate_stream`."""
    tensors = {
        "text_input": prompt,
        "stream": True,
        "sampling_parameters": json.dumps(sampling),
    }
    return json.dumps({**tensors, "parameters": {} if coalesce else {COALESCE: False}}).encode()


def completion_body(
    model: str, prompt: str, sampling: Mapping[str, Any], *, stream: bool = True
) -> bytes:
    """For `/v1/completions`; the answer has its usage."""
    return json.dumps({"model": model, "prompt": prompt, **sampling, **_way(stream)}).encode()


def chat_body(
    model: str, prompt: str, sampling: Mapping[str, Any], *, stream: bool = True
) -> bytes:
    """For `/v1/chat/completions`; the answer has its usage."""
    messages = [{"role": "user", "content": prompt}]
    return json.dumps({"model": model, "messages": messages, **sampling, **_way(stream)}).encode()


def _way(stream: bool) -> Mapping[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True}} if stream else {}


@dataclass(frozen=True, slots=True)
class OpenAiRoute:
    """A path of OpenAI's API, and what makes the body of a request to it."""

    path: str
    body: Callable[..., bytes]


OPENAI = {
    "completions": OpenAiRoute("/v1/completions", completion_body),
    "chat": OpenAiRoute("/v1/chat/completions", chat_body),
}
"""Ways to ask for tokens over OpenAI's API, by the names that scenarios have for them."""

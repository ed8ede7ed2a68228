"""Text generation: which tensors of a model a prompt and the caller's options become."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock_client.client.conversion import Value
from penstock_client.client.errors import InvalidArgumentError
from penstock_client.client.request import Parameter
from penstock_client.reading.views import ModelMetadata, TensorMetadata

_PROMPT = "text_input"
_OPTIONS = "sampling_parameters"
_OPTION = "sampling_param_"
"""How the inputs for options begin with models of TensorRT-LLM's LLM API."""
_STREAM = "stream"
_ANSWER = "text_output"


def prompt_inputs(
    metadata: ModelMetadata, prompt: str | bytes, options: Mapping[str, Any]
) -> tuple[dict[str, Value], dict[str, Parameter]]:
    """The inputs and request parameters of a prompt; raises `InvalidArgumentError`.

    Options that are inputs of the model, as they are or behind `sampling_param_`, become tensors;
    others go into `sampling_parameters` if the model has it, as those of vLLM and OpenVINO GenAI
    do, and become parameters if it does not.
    """
    known = {tensor.name for tensor in metadata.inputs}
    inputs: dict[str, Value] = {_prompt_name(metadata): prompt}
    if _STREAM in known:
        inputs[_STREAM] = True
    others = {}
    for name, value in options.items():
        tensor = next((each for each in (name, _OPTION + name) if each in known), None)
        if tensor is None:
            others[name] = value
        else:
            inputs[tensor] = value
    if _OPTIONS in known and _OPTIONS not in inputs:
        inputs[_OPTIONS] = json.dumps(others)
        return inputs, {}
    return inputs, {name: _parameter(name, value) for name, value in others.items()}


def answer_name(metadata: ModelMetadata) -> str:
    """The output that holds the text."""
    found = _the_only(metadata.outputs, _ANSWER)
    if found is None:
        raise InvalidArgumentError(
            f"model '{metadata.name}' has no output '{_ANSWER}' and not just one of strings;"
            " use `stream` for it"
        )
    return found


def _prompt_name(metadata: ModelMetadata) -> str:
    found = _the_only(metadata.inputs, _PROMPT)
    if found is None:
        names = ", ".join(tensor.name for tensor in metadata.inputs)
        raise InvalidArgumentError(
            f"model '{metadata.name}' takes no prompt: it has no input '{_PROMPT}', but {names}"
        )
    return found


def _the_only(tensors: tuple[TensorMetadata, ...], name: str) -> str | None:
    """`name` if it is among the tensors, or else the only one of strings."""
    if any(tensor.name == name for tensor in tensors):
        return name
    texts = [tensor.name for tensor in tensors if tensor.datatype == "BYTES"]
    return texts[0] if len(texts) == 1 else None


def _parameter(name: str, value: Any) -> Parameter:
    if isinstance(value, bool | int | float | str):
        return value
    raise InvalidArgumentError(
        f"the option '{name}' must be a boolean, a number or a string for this model"
    )

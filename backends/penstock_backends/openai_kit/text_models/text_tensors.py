"""`TextTensors`: the tensors by which a model of any backend is known as one from text to text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from penstock.backend import (
    TEXT_OUTPUT,
    DataType,
    Input,
    InvalidRequestError,
    ModelConfig,
    Tensor,
)
from penstock_backends.openai_kit.generator import Generation

DEFAULT_LENGTH: Final = "default_length"
"""Parameter of a request whose length is the server's word, which not every model can take."""

_TEXT: Final = "text_input"
_STREAM: Final = "stream"
_PARAMETERS: Final = "sampling_parameters"
_RETURN: Final = "return_"
_EXCLUDE: Final = "exclude_input_in_output"
_TOLD: Final = ("finish_reason", "num_input_tokens", "num_output_tokens")
"""Outputs that are asked for where a model has them."""
_WORDS: Final = ("bad_words", "stop_words")
_DEFAULT_LENGTH: Final = 16
"""Triton's own, for models that must be told a length."""
_NUMBERS: Final = frozenset(
    (
        *(DataType.FP16, DataType.FP32, DataType.FP64),
        *(DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64),
        *(DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64),
    )
)


class _Sampling(NamedTuple):
    """The inputs that may take a sampling parameter, and the value that asks for nothing."""

    inputs: tuple[str, ...]
    neutral: Any


_SAMPLING: Final[Mapping[str, _Sampling]] = {
    "max_tokens": _Sampling(("max_tokens",), _DEFAULT_LENGTH),
    "temperature": _Sampling(("temperature",), 1),
    "top_p": _Sampling(("top_p", "runtime_top_p"), 1),
    "top_k": _Sampling(("top_k", "runtime_top_k"), 0),
    "min_tokens": _Sampling(("min_tokens", "min_length"), 0),
    "frequency_penalty": _Sampling(("frequency_penalty",), 0),
    "presence_penalty": _Sampling(("presence_penalty",), 0),
    "repetition_penalty": _Sampling(("repetition_penalty",), 1),
    "seed": _Sampling(("seed", "random_seed"), 0),
}
_BY_INPUT: Final = {name: one for one in _SAMPLING.values() for name in one.inputs}
_NEUTRAL: Final[Mapping[str, Any]] = {
    "n": 1,
    **{name: one.neutral for name, one in _SAMPLING.items() if name not in ("max_tokens", "seed")},
}
"""Values that ask for nothing, so that a model needs no input for them."""

_NEVER: Final = ("logprobs", "n")
"""Parameters that a text alone cannot answer."""


class TextTensors:
    """A model from `text_input` to `text_output`, with inputs of vLLM's or TensorRT-LLM's models.

    A sampling parameter is given by the input of its name, else in the JSON of
    `sampling_parameters`. Inputs that a request must have get a value that asks for nothing.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._model = config.name
        self._inputs = {one.name: one for one in config.input if _taken(one)}
        self._outputs = {one.name for one in config.output}
        self._batched = config.max_batch_size > 0
        self._decoupled = config.decoupled

    @classmethod
    def of(cls, config: ModelConfig) -> TextTensors | None:
        """Those of a model; `None` where it is no such model, or needs what is not known here."""
        outputs = {one.name: one.data_type for one in config.output}
        if outputs.get(TEXT_OUTPUT) is not DataType.BYTES or config.sequence_batching is not None:
            return None
        known = {one.name for one in config.input if _taken(one)}
        needed = {one.name for one in config.input if not one.optional}
        return cls(config) if _TEXT in known and needed <= known else None

    def inputs(self, generation: Generation) -> dict[str, Tensor]:
        """The inputs of a request; raises `InvalidRequestError` that names a parameter."""
        given: dict[str, list[Any]] = {_TEXT: [generation.prompt.text]}
        given |= self._flags(generation) | self._needed()
        parameters: dict[str, str] = {}
        rest = {}
        for name, value in self._asked(generation).items():
            own = self._input_of(name)
            if value == []:
                continue
            if own is not None:
                given[own] = value if isinstance(value, list) else [value]
                parameters[own] = name
            elif _PARAMETERS in self._inputs:
                rest[name] = value
            elif value != _NEUTRAL.get(name) and not _is_default(name, generation):
                _refuse(name, f"is not supported: model '{self._model}' has no input for it")
        if _PARAMETERS in self._inputs:
            given[_PARAMETERS] = [json.dumps(rest)]
        return {
            name: self._tensor(name, values, parameters.get(name, name))
            for name, values in given.items()
        }

    def _asked(self, generation: Generation) -> dict[str, Any]:
        """The parameters of a request that the model is given."""
        asked = dict(generation.parameters)
        if generation.token_ids:
            _refuse("return_token_ids", f"is not supported: model '{self._model}' gives text alone")
        for name in _NEVER:
            if name in asked and asked.pop(name) != _NEUTRAL.get(name):
                _refuse(name, f"is not supported: model '{self._model}' gives one text alone")
        if isinstance(asked.get("stop"), str):
            asked["stop"] = [asked["stop"]]
        return asked

    def _flags(self, generation: Generation) -> dict[str, list[bool]]:
        """Switches: only the new text is wanted, piece by piece where it is streamed, and counts
        and reasons where there are outputs for them."""
        values = {
            _STREAM: self._decoupled and not generation.whole,
            _EXCLUDE: True,
            **{_RETURN + name: True for name in _TOLD if name in self._outputs},
        }
        return {
            name: [values.get(name, False)]
            for name, one in self._inputs.items()
            if _is_flag(one) and (name in values or not one.optional)
        }

    def _needed(self) -> dict[str, list[Any]]:
        """Values of inputs that must be there, if the request says nothing of them."""
        needed = [name for name, one in self._inputs.items() if not one.optional]
        numbers = {name: [_BY_INPUT[name].neutral] for name in needed if name in _BY_INPUT}
        return {**numbers, **{name: [""] for name in needed if name in _WORDS}}

    def _input_of(self, parameter: str) -> str | None:
        if parameter == "stop":
            return "stop_words" if "stop_words" in self._inputs else None
        names = _SAMPLING[parameter].inputs if parameter in _SAMPLING else ()
        return next((name for name in names if name in self._inputs), None)

    def _tensor(self, name: str, values: Sequence[Any], parameter: str) -> Tensor:
        declared = self._inputs[name]
        if len(values) > 1 and declared.dims[-1] == 1:
            _refuse(parameter, f"may be one text only: model '{self._model}' takes no more")
        shape = (*([1] if self._batched else []), *([1] * (len(declared.dims) - 1)), len(values))
        if declared.data_type is DataType.BYTES:
            return Tensor.from_strings(values, shape)
        assert declared.data_type is not None
        try:
            with np.errstate(over="raise"):
                array = np.array(values, declared.data_type.numpy).reshape(shape)
        except (FloatingPointError, OverflowError):
            _refuse(parameter, f"is too large or too small for the input of model '{self._model}'")
        return Tensor.from_numpy(array)


def _is_default(parameter: str, generation: Generation) -> bool:
    """Whether a parameter comes from the server, by `--default-max-tokens`."""
    origin = generation.origin
    return parameter == "max_tokens" and origin is not None and DEFAULT_LENGTH in origin.parameters


def _is_flag(one: Input) -> bool:
    named = one.name in (_STREAM, _EXCLUDE) or one.name.startswith(_RETURN)
    return named and one.data_type is DataType.BOOL


def _taken(one: Input) -> bool:
    """Whether an input is known by name and datatype, and takes one value, or a list of them."""
    if not one.dims or not set(one.dims) <= {1, -1}:
        return False
    if one.name in (_TEXT, _PARAMETERS, *_WORDS):
        return one.data_type is DataType.BYTES
    return _is_flag(one) or (one.name in _BY_INPUT and one.data_type in _NUMBERS)


def _refuse(parameter: str, complaint: str) -> NoReturn:
    raise InvalidRequestError(f"sampling parameter '{parameter}' {complaint}")

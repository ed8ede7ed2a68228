"""The face of the model `tensorrt_llm` of the five-model layout: token ids in and out (TL-10)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from penstock.backend import (
    DataType,
    InferenceRequest,
    InferenceResponse,
    Input,
    InvalidRequestError,
    ModelConfig,
    Output,
)
from penstock_backends.tensorrt_llm.answer import OutputEncoder
from penstock_backends.tensorrt_llm.face import Respond
from penstock_backends.tensorrt_llm.layout import (
    COMMON,
    TOKENS,
    CommonOutputs,
    declared,
    excludes_input,
    optional,
    output,
    padded,
    read_outputs,
    read_sampling,
)
from penstock_backends.tensorrt_llm.request import Prompt, flag, scalar
from penstock_backends.tensorrt_llm.settings import EngineSettings

LENGTH: Final = "request_output_len"
WORDS: Final = {
    "stop_words_list": ("stop_words", "stop_token_ids"),
    "bad_words_list": ("bad_words", "bad_token_ids"),
}
"""Inputs with lists of words, each of several tokens or of one."""

REFUSED: Final = {
    "draft_input_ids": DataType.INT32,
    "decoder_input_ids": DataType.INT32,
    "decoder_input_lengths": DataType.INT32,
    "draft_logits": DataType.FP32,
    "draft_acceptance_threshold": DataType.FP32,
    "prompt_embedding_table": DataType.FP16,
    "prompt_vocab_size": DataType.INT32,
    "lora_task_id": DataType.UINT64,
    "lora_weights": DataType.FP16,
    "lora_config": DataType.INT32,
}
"""Inputs that only the removed backend could use: the LLM API has nothing to give them to."""


class TokenFace:
    """Token ids of one prompt, and those that are generated: in a stream the new ones."""

    inputs: Sequence[Input] = (
        Input(name="input_ids", data_type=DataType.INT32, dims=(-1,)),
        Input(name="input_lengths", data_type=DataType.INT32, dims=(1,)),
        Input(name=LENGTH, data_type=DataType.INT32, dims=(1,)),
        optional("streaming", DataType.BOOL),
        *declared(TOKENS),
        *(optional(name, DataType.INT32, 2, -1) for name in WORDS),
        optional("embedding_bias", DataType.FP32, -1),
        *(optional(name, datatype, -1) for name, datatype in REFUSED.items()),
    )
    outputs: Sequence[Output] = (
        output("output_ids", DataType.INT32, -1, -1),
        output("sequence_length", DataType.INT32, -1),
        *COMMON,
    )

    def read(self, request: InferenceRequest, settings: EngineSettings) -> Prompt:
        """Decode a request; raises `InvalidRequestError` that names the input at fault."""
        for name in REFUSED:
            if name in request.inputs:
                raise InvalidRequestError(
                    f"input '{name}' is not supported: TensorRT-LLM's LLM API does not take it"
                )
        given = read_sampling(request, TOKENS, LENGTH, settings.most_sequences)
        for name, (several, single) in WORDS.items():
            words = _words(request, name)
            given |= {single: [word[0] for word in words if len(word) == 1]} if words else {}
            if longer := [word for word in words if len(word) > 1]:
                given[several] = longer
        if "embedding_bias" in request.inputs:
            given["embedding_bias"] = request.inputs["embedding_bias"].numpy().ravel()
        return Prompt(
            text=_ids(request),
            sampling={**given, "detokenize": False},
            given=given,
            streaming=flag(request, "streaming"),
            wanted=read_outputs(request),
        )

    def answer(self, encoder: OutputEncoder, prompt: Prompt, config: ModelConfig) -> Respond:
        """Encode new tokens; a whole answer has the prompt in front, unless it is excluded."""
        exclude = excludes_input(prompt.wanted, config)
        front = () if exclude or prompt.streaming else prompt.text
        return TokenAnswer(encoder, prompt, front).response


class TokenAnswer:
    """The responses of one request, each with the tokens since the one before."""

    def __init__(self, encoder: OutputEncoder, prompt: Prompt, front: Sequence[Any]) -> None:
        self._encoder = encoder
        self._front = front
        self._common = CommonOutputs(encoder, prompt.wanted, len(prompt.text))
        self._sent: list[int] = []

    def response(self, found: Any) -> InferenceResponse:
        """The response for the output as it is now."""
        sequences, array = found.outputs, self._encoder.array
        since = self._sent or [0] * len(sequences)
        rows = [
            [*self._front, *one.token_ids[at:]] for one, at in zip(sequences, since, strict=True)
        ]
        lengths = np.array([len(row) for row in rows])
        tensors = {
            "output_ids": array("output_ids", padded(rows, 0)),
            "sequence_length": array("sequence_length", lengths),
            **self._common.tensors(found, since),
        }
        self._sent = [len(one.token_ids) for one in sequences]
        return InferenceResponse(tensors, final=found.finished)


def _ids(request: InferenceRequest) -> list[int]:
    """The prompt: as many of `input_ids` as `input_lengths` says."""
    tensor = request.inputs.get("input_ids")
    if tensor is None:
        raise InvalidRequestError("input 'input_ids' is needed")
    values = tensor.numpy()
    if values.ndim > 1 and values.shape[0] != 1:
        raise InvalidRequestError(
            f"input 'input_ids' must hold one prompt for each request, not {values.shape[0]}"
        )
    ids: list[int] = values.ravel().tolist()
    length = scalar(request, "input_lengths")
    if length is not None and not 0 < length <= len(ids):
        raise InvalidRequestError(
            f"input 'input_lengths' must be 1 to {len(ids)}, the tokens of 'input_ids', "
            f"not {length}"
        )
    ids = ids[:length]
    if not ids or min(ids) < 0:
        raise InvalidRequestError("input 'input_ids' must hold token ids, none below 0")
    return ids


def _words(request: InferenceRequest, name: str) -> list[list[int]]:
    """Words of a list: all their tokens, and in the second row where each word ends."""
    tensor = request.inputs.get(name)
    if tensor is None:
        return []
    values = tensor.numpy()
    if values.shape[-2:-1] != (2,) or values.size != 2 * values.shape[-1]:
        raise InvalidRequestError(f"input '{name}' must have two rows: tokens and ends")
    tokens, ends = values.reshape(2, -1).tolist()
    bounds = [0, *(end for end in ends if end > 0)]
    if bounds != sorted(set(bounds)) or bounds[-1] > len(tokens):
        raise InvalidRequestError(f"input '{name}' has ends that are not in order")
    return [tokens[at:end] for at, end in pairwise(bounds)]

"""The face of the models `ensemble` and `tensorrt_llm_bls` of the five-model layout (TL-14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.backend import (
    DataType,
    InferenceRequest,
    InferenceResponse,
    Input,
    ModelConfig,
    Output,
)
from penstock_backends.tensorrt_llm.answer import OutputEncoder
from penstock_backends.tensorrt_llm.face import Respond
from penstock_backends.tensorrt_llm.layout import (
    COMMON,
    CommonOutputs,
    declared,
    excludes_input,
    optional,
    output,
    read_outputs,
    read_sampling,
)
from penstock_backends.tensorrt_llm.parameter_text import as_bool, read_parameter
from penstock_backends.tensorrt_llm.request import (
    Prompt,
    check_words,
    flag,
    text_input,
    texts,
)
from penstock_backends.tensorrt_llm.settings import EngineSettings

NAMES: Final = ("ensemble", "tensorrt_llm_bls")
"""Models with this face, unless their `config.pbtxt` declares other inputs."""

ACCUMULATE: Final = "accumulate_tokens"
"""Parameter of a model: whether each response of a stream has the whole text so far."""


class TextFace:
    """A text in and a text out, with the sampling inputs of the layout."""

    inputs: Sequence[Input] = (
        Input(name="text_input", data_type=DataType.BYTES, dims=(1,)),
        Input(name="max_tokens", data_type=DataType.INT32, dims=(1,)),
        optional("bad_words", DataType.BYTES, -1),
        optional("stop_words", DataType.BYTES, -1),
        optional("stream", DataType.BOOL),
        *declared({}),
    )
    outputs: Sequence[Output] = (output("text_output", DataType.BYTES, -1), *COMMON)

    def read(self, request: InferenceRequest, settings: EngineSettings) -> Prompt:
        """Decode a request; raises `InvalidRequestError` that names the input at fault."""
        given = read_sampling(request, {}, "max_tokens", settings.most_sequences)
        for name, field in (("stop_words", "stop"), ("bad_words", "bad")):
            # A client that has none sends an empty text, as upstream's does.
            if words := [word for word in texts(request, name) if word]:
                check_words(name, words)
                given[field] = words
        return Prompt(
            text=text_input(request),
            sampling=given,
            given=given,
            streaming=flag(request, "stream"),
            wanted=read_outputs(request),
        )

    def answer(self, encoder: OutputEncoder, prompt: Prompt, config: ModelConfig) -> Respond:
        """Encode new text, or the whole where `accumulate_tokens` says so."""
        exclude = excludes_input(prompt.wanted, config)
        front = "" if exclude or prompt.streaming else str(prompt.text)
        whole = bool(read_parameter(config, ACCUMULATE, as_bool)) or not prompt.streaming
        return TextAnswer(encoder, prompt, front, whole=whole).response


class TextAnswer:
    """The responses of one request."""

    def __init__(self, encoder: OutputEncoder, prompt: Prompt, front: str, *, whole: bool) -> None:
        self._encoder = encoder
        self._front = front
        self._whole = whole
        self._common = CommonOutputs(encoder, prompt.wanted, 0)
        self._sent: list[tuple[int, int]] = []

    def response(self, found: Any) -> InferenceResponse:
        """The response for the output as it is now."""
        sequences = found.outputs
        before = [(0, 0)] * len(sequences) if self._whole or not self._sent else self._sent
        new = [self._front + one.text[at:] for one, (at, _) in zip(sequences, before, strict=True)]
        tensors = {
            "text_output": self._encoder.tensor("text_output", new),
            **self._common.tensors(found, [tokens for _, tokens in before]),
        }
        self._sent = [(len(one.text), len(one.token_ids)) for one in sequences]
        return InferenceResponse(tensors, final=found.finished)

"""The face of TensorRT-LLM's LLM-API model (TL-03 to TL-05)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.backend import InferenceRequest, Input, ModelConfig, Output
from penstock_backends.tensorrt_llm.answer import Answer, OutputEncoder
from penstock_backends.tensorrt_llm.declared_tensors import INPUTS, OUTPUTS
from penstock_backends.tensorrt_llm.face import Respond
from penstock_backends.tensorrt_llm.request import Prompt, read_prompt
from penstock_backends.tensorrt_llm.settings import EngineSettings


class LlmApiFace:
    """One prompt, `sampling_param_*`, and the text so far in each response."""

    inputs: Sequence[Input] = INPUTS
    outputs: Sequence[Output] = OUTPUTS

    def read(self, request: InferenceRequest, settings: EngineSettings) -> Prompt:
        """Decode a request."""
        return read_prompt(request, settings.most_sequences)

    def answer(self, encoder: OutputEncoder, prompt: Prompt, config: ModelConfig) -> Respond:
        """Encode the text so far."""
        return Answer(encoder, prompt.wanted).response

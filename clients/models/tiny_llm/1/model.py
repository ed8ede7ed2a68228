"""Writes words at a steady pace: the tensors are those of the demo's `tiny_llm`."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import cycle, islice

from penstock.model import DataType, Input, Model, ModelConfig, Output, Request, Response

WORDS = "the water comes down the pipe and turns the wheel and".split()
SECONDS_PER_TOKEN = 0.01


class TinyLlm(Model):
    config = ModelConfig(
        input=(
            Input("text_input", DataType.BYTES, dims=(1,)),
            Input("stream", DataType.BOOL, dims=(1,), optional=True),
            Input("sampling_parameters", DataType.BYTES, dims=(1,), optional=True),
        ),
        output=(Output("text_output", DataType.BYTES, dims=(-1,)),),
    )

    async def infer(self, request: Request) -> AsyncIterator[Response]:
        chosen = "sampling_parameters" in request and request.text("sampling_parameters")
        tokens = json.loads(chosen or "{}").get("max_tokens", 16)
        for word in islice(cycle(WORDS), tokens):
            await asyncio.sleep(SECONDS_PER_TOKEN)
            yield Response({"text_output": [f" {word}"]})

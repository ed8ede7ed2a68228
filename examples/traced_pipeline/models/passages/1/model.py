"""Finds the passage nearest to an embedding, in an index of three."""

import numpy as np
from opentelemetry import trace

from penstock.model import DataType, Input, Model, ModelConfig, Output, Request, Response

tracer = trace.get_tracer("passages")

PASSAGES = ["The file is open.", "A list has no end.", "The name of a module is a string."]


class Passages(Model):
    config = ModelConfig(
        input=(Input("EMBEDDING", DataType.FP32, dims=(384,)),),
        output=(Output("PASSAGE", DataType.BYTES, dims=(1,)),),
    )

    def __init__(self) -> None:
        self._index = np.random.default_rng(0).standard_normal((len(PASSAGES), 384))

    async def infer(self, request: Request) -> Response:
        with tracer.start_as_current_span("search the index") as span:
            nearest = int(np.argmax(self._index @ request["EMBEDDING"]))
            span.set_attribute("index.size", len(PASSAGES))
            span.add_event("found", {"passage": nearest})
        return Response({"PASSAGE": [PASSAGES[nearest]]})

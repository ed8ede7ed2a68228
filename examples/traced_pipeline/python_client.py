"""Asks the pipeline over gRPC with tritonclient, inside a span of the client's own.

python python_client.py HOST:PORT OTLP_URL      prints the trace id
"""

from __future__ import annotations

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def tensor(name: str, value: Any, datatype: str) -> grpcclient.InferInput:
    array = np.array([value], dtype=np.object_ if datatype == "BYTES" else bool)
    made = grpcclient.InferInput(name, [1], datatype)
    made.set_data_from_numpy(array)
    return made


def main(address: str, collector: str) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "client in Python"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=collector)))
    tracer = provider.get_tracer("client")
    answers: queue.Queue[Any] = queue.Queue()
    ask = tracer.start_as_current_span("ask", kind=trace.SpanKind.CLIENT)
    with grpcclient.InferenceServerClient(address) as client, ask as span:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        client.start_stream(
            callback=lambda result, error: answers.put((result, error)), headers=headers
        )
        sampling = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
        client.async_stream_infer(
            "rag",
            [
                tensor("question", b"How does one open a file?", "BYTES"),
                tensor("stream", True, "BOOL"),
                tensor("sampling_parameters", json.dumps(sampling).encode(), "BYTES"),
            ],
            enable_empty_final_response=True,
        )
        while True:
            result, error = answers.get(timeout=60)
            if error:
                raise error
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
            span.add_event("text")
        client.stop_stream()
    provider.shutdown()
    print(f"{span.get_span_context().trace_id:032x}")


if __name__ == "__main__":
    main(*sys.argv[1:])

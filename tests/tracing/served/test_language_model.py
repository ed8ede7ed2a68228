"""A language model's requests as spans: those of its engine's phases, and tokens in attributes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from backends.conftest import write_settings
from harness.serving import Served, serving, wait_until
from penstock.demo import language_model
from tracing.export.collector import HttpCollector, attributes
from tracing.served.calls import stub

pytestmark = [pytest.mark.slow, pytest.mark.engine]

PROMPT = "The with statement is used to"
_IDS = count(1)


@pytest.fixture(scope="module")
def collector() -> Iterator[HttpCollector]:
    with HttpCollector() as collector:
        yield collector


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: HttpCollector) -> Iterator[Served]:
    """A server of one language model, whose requests with a context are exported."""
    folder = tmp_path_factory.mktemp("llm")
    version = folder / "models" / "llm" / "1"
    version.mkdir(parents=True)
    language_model.add_gguf(version)
    write_settings(version, num_kv_blocks=64)
    (version.parent / "config.pbtxt").write_text('backend: "openvino_genai"')
    options = ["mode=opentelemetry", "level=TIMESTAMPS", f"opentelemetry,url={collector.url}"]
    options.append("opentelemetry,bsp_schedule_delay=50")
    arguments = [f"--trace-config={option}" for option in options]
    with serving(folder / "models", folder / "log", *arguments) as served:
        yield served


def request(max_tokens: int) -> Any:
    message = service_pb2.ModelInferRequest(model_name="llm")
    sampling = json.dumps({"max_tokens": max_tokens, "temperature": 0, "ignore_eos": True})
    for name, text in (("text_input", PROMPT), ("sampling_parameters", sampling)):
        tensor = message.inputs.add(name=name, datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(text.encode())
    tensor = message.inputs.add(name="stream", datatype="BOOL", shape=[1])
    tensor.contents.bool_contents.append(True)
    return message


def stream(
    server: Served, collector: HttpCollector, max_tokens: int, most: int | None = None
) -> dict[str, Any]:
    """The spans of one stream by their names; it is cancelled after `most` responses."""
    trace_id = (next(_IDS) << 64) | os.getpid()
    parent = (("traceparent", f"00-{trace_id:032x}-{0xAA:016x}-01"),)
    channel, service = stub(server.grpc)
    with channel:
        call = service.ModelStreamInfer(iter([request(max_tokens)]), metadata=parent, timeout=120)
        for number, _ in enumerate(call, 1):
            if number == most:
                call.cancel()
                break
    wait_until(lambda: any(s.name == "llm" for s in collector.trace(trace_id)))
    return {span.name: span for span in collector.trace(trace_id)}


def test_phases_of_the_engine_are_spans_and_tokens_attributes(
    server: Served, collector: HttpCollector
) -> None:
    spans = stream(server, collector, 9)
    phases = [spans[name] for name in ("engine queue", "prefill", "decode")]
    times = [
        time for span in phases for time in (span.start_time_unix_nano, span.end_time_unix_nano)
    ]
    assert times == sorted(times)
    assert times[1] == times[2]
    assert times[3] == times[4]
    assert spans["llm"].start_time_unix_nano <= times[0]
    assert times[-1] <= spans["llm"].end_time_unix_nano
    told = attributes(spans["llm"].attributes)
    assert told["gen_ai.usage.input_tokens"] == 6
    assert told["gen_ai.usage.output_tokens"] == 9
    assert told["gen_ai.response.finish_reasons"] == ["length"]
    assert told["gen_ai.request.model"] == "llm"
    assert PROMPT not in repr(spans)


def test_a_cancelled_stream_tells_the_tokens_that_were_made(
    server: Served, collector: HttpCollector
) -> None:
    """The engine's process hears of the cancellation when the request has ended in the server."""
    spans = stream(server, collector, 900, most=3)
    told = attributes(spans["llm"].attributes)
    assert 3 <= told["gen_ai.usage.output_tokens"] < 900
    assert "gen_ai.response.finish_reasons" not in told
    assert "decode" in spans

"""What `--metrics-config` adds to the metrics page, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from prometheus_client.parser import text_string_to_metric_families

from harness.repeat_model import REPEAT
from harness.serving import Served, serving

_BUCKETS = """\
model_metrics { metric_control: [ {
    metric_identifier: { family: "nv_inference_first_response_histogram_ms" }
    histogram_options: { buckets: [ 100, 600000 ] }
} ] }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "models" / "repeat" / "1").mkdir(parents=True)
    (tmp_path / "models" / "repeat" / "config.pbtxt").write_text(REPEAT + _BUCKETS)
    flags = ("histogram_latencies=true", "summary_latencies=true", "summary_quantiles=0.5:0.01")
    arguments = [f"--metrics-config={flag}" for flag in flags]
    with serving(tmp_path / "models", tmp_path / "log", *arguments) as served:
        yield served


def _ask(address: str, delays: list[int]) -> None:
    """One request; its responses come after so many milliseconds each."""
    tensors = {"IN": (delays, np.int32, "INT32"), "DELAY": (delays, np.uint32, "UINT32")}
    tensors["WAIT"] = ([0], np.uint32, "UINT32")
    inputs = []
    for name, (numbers, dtype, datatype) in tensors.items():
        inputs.append(grpcclient.InferInput(name, [len(numbers)], datatype))
        inputs[-1].set_data_from_numpy(np.array(numbers, dtype))
    answers: SimpleQueue[Any] = SimpleQueue()
    with grpcclient.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("repeat", inputs)
        for _ in delays:
            assert answers.get(timeout=60)[1] is None
        client.stop_stream()


@pytest.mark.contract("DC-06", "ME-14", "ME-15", "C-38", "CL-36")
def test_first_responses_and_quantiles_are_on_the_page(server: Served) -> None:
    _ask(server.grpc, [150, 0, 0])
    _ask(server.grpc, [150, 0])
    with urlopen(server.metrics) as page:
        families = text_string_to_metric_families(page.read().decode())
    values = {
        (sample.name, sample.labels.get("le", sample.labels.get("quantile", ""))): sample.value
        for family in families
        for sample in family.samples
    }
    name = "nv_inference_first_response_histogram_ms"
    assert [values[f"{name}_bucket", le] for le in ("100", "600000", "+Inf")] == [0, 2, 2]
    assert values[f"{name}_sum", ""] >= 300
    summary = "nv_inference_request_summary_us"
    assert values[f"{summary}_count", ""] == 2
    assert 0 < values[summary, "0.5"] < values[f"{summary}_sum", ""]

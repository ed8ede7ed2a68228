"""Where in a configuration stands what a message is about."""

from __future__ import annotations

import time

import pytest

from penstock.models.checking.config_text import ConfigText

_TEXT = b"""\
# A model.
name: "m"
backend: "onnxruntime"
max_batch_size: 4
input [
  { name: "A" data_type: TYPE_FP32 dims: [ 4 ] },
  {
    name: "B"
    data_type: TYPE_FP32
    dims: [ 0, 3 ]
  }
]
output < name: 'O' data_type: TYPE_FP32 >;
dynamic_batching {
  preferred_batch_size: [ 2, 8 ]
  default_queue_policy { max_queue_size: 3 }
}
instance_group [ { kind: KIND_GPU count: 2 } ]
parameters { key: "penstock.hang_" 'seconds' value: { string_value: "x" } }
parameters {
  key: "other"
  value: { string_value: "y" }
}
optimization {
  graph { level: 1 }
}
default_model_filename: "net.onnx"
"""


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("model input 'B' dimension must be integer >= 1 for m", (10, 13)),
        ("model input 'A' dimension must be integer >= 1 for m", (6, 44)),
        ("model output 'O' must specify 'dims' for m", (13, 10)),
        ("dynamic batching preferred size must be <= max batch size for m", (15, 27)),
        ("instance group m_0 of model m has kind KIND_GPU but no GPUs are available", (18, 20)),
        ("parameter 'penstock.hang_seconds' must be a number of seconds, got 'x'", (19, 14)),
        ("model 'm': file /r/m/1/net.onnx does not exist", (27, 1)),
        ("model 'm': without effect with backend 'onnxruntime': optimization.graph", (25, 3)),
        ("unable to find backend 'onnxruntime'; installed backends: none", (3, 1)),
        ("unexpected directory name 'n' for model 'm', directory name must equal", (2, 1)),
        ("'max_batch_size' must be non-negative value for m", (4, 1)),
        ("something else", (3, 1)),
    ],
)
def test_the_field_that_a_message_names_is_found(message: str, place: tuple[int, int]) -> None:
    assert ConfigText(_TEXT).place_of(message) == place


def test_a_text_that_ends_too_early_is_known_up_to_there() -> None:
    text = ConfigText(b'max_batch_size: 4\ninput [ { name: "A" dims: "')
    assert text.place_of("'max_batch_size' is wrong") == (1, 1)
    assert text.place_of("input 'A' is wrong") == (2, 11)


@pytest.mark.parametrize("content", [b"", b"}", b"a {" * 5000, b"\xff\xfe", b": : [ ]", b"a: ["])
def test_what_is_no_configuration_has_a_beginning(content: bytes) -> None:
    assert ConfigText(content).place_of("whatever") == (1, 1)


def test_a_field_among_many_is_found_in_time() -> None:
    sizes = ", ".join(map(str, range(20_000)))
    text = ConfigText(f"dynamic_batching {{ preferred_batch_size: [ {sizes} ] }}".encode())
    begin = time.process_time()
    text.place_of("preferred size must be <= max batch size for m")
    assert time.process_time() - begin < 5  # a minute, where each is compared with all others

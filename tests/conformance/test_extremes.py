"""Tensors that protocols stumble over, through a real server: each comes back as it was sent."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_NUMBERS = "BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FP16 FP32 FP64".split()
_CONFIG = """
backend: "identity"
max_batch_size: {rows}
input {{ name: "IN" data_type: TYPE_{kind} dims: [ {dims} ] }}
output {{ name: "OUT" data_type: TYPE_{kind} dims: [ {dims} ] }}
"""

_LIBRARIES = pytest.mark.parametrize("library", [grpcclient, httpclient], ids=["grpc", "http"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`any_KIND` takes a vector of any length, `rows_KIND` batches of rows of any length."""
    models = tmp_path_factory.mktemp("extremes") / "models"
    for kind in (*_NUMBERS, "STRING"):
        for name, rows in (("any", 0), ("rows", 8)):
            folder = models / f"{name}_{kind}"
            (folder / "1").mkdir(parents=True)
            (folder / "config.pbtxt").write_text(_CONFIG.format(kind=kind, rows=rows, dims=-1))
    with serving(models, models.with_suffix(".log")) as served:
        yield served


def _client(server: Served, library: Any) -> Any:
    address = server.grpc if library is grpcclient else server.http
    return library.InferenceServerClient(address)


def _echoed(server: Served, library: Any, array: np.ndarray, name: str = "any") -> Any:
    kind = np_to_triton_dtype(array.dtype)
    tensor = library.InferInput("IN", array.shape, kind)
    tensor.set_data_from_numpy(array)
    model = f"{name}_{'STRING' if kind == 'BYTES' else kind}"
    with _client(server, library) as client:
        return client.infer(model, [tensor]).as_numpy("OUT")


def _texts(*values: bytes) -> np.ndarray:
    return np.array(values, np.object_)


@_LIBRARIES
@pytest.mark.parametrize(
    "values",
    [(b"\0",), (b"a\0b", b"\0\0", b"", b"c\0"), (bytes(range(256)),)],
    ids=["alone", "among others", "every byte"],
)
def test_strings_may_hold_nul_and_any_byte(
    server: Served, library: Any, values: tuple[bytes, ...]
) -> None:
    assert _echoed(server, library, _texts(*values)).tolist() == list(values)


def test_nul_passes_as_json_too(server: Served) -> None:
    tensor = httpclient.InferInput("IN", [2], "BYTES")
    tensor.set_data_from_numpy(_texts(b"a\0b", b"\0"), binary_data=False)
    wanted = [httpclient.InferRequestedOutput("OUT", binary_data=False)]
    with _client(server, httpclient) as client:
        answer = client.infer("any_STRING", [tensor], outputs=wanted)
    assert answer.get_response()["outputs"][0]["data"] == ["a\0b", "\0"]


@_LIBRARIES
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.contract("V-11")
def test_numbers_that_are_none_keep_their_bits(server: Served, library: Any, kind: Any) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(kind).tiny], kind)
    assert _echoed(server, library, values).tobytes() == values.tobytes()


@pytest.mark.contract("V-11")
@pytest.mark.parametrize("kind", ["FP32", "FP64"])
def test_numbers_that_are_none_have_their_names_in_json(server: Served, kind: str) -> None:
    data = "[NaN,Infinity,-Infinity,1.5]"
    body = f'{{"inputs":[{{"name":"IN","shape":[4],"datatype":"{kind}","data":{data}}}]}}'
    url = f"http://{server.http}/v2/models/any_{kind}/infer"
    with urllib.request.urlopen(urllib.request.Request(url, body.encode()), timeout=60) as answer:
        text = answer.read().decode()
    (output,) = json.loads(text)["outputs"]
    assert f'"data":{data}'.replace(",", "") in text.replace(",", "")
    assert math.isnan(output["data"][0])
    assert output["data"][1:] == [math.inf, -math.inf, 1.5]


@_LIBRARIES
@pytest.mark.parametrize("kind", _NUMBERS)
def test_ends_of_each_datatype_come_back(server: Served, library: Any, kind: str) -> None:
    numpy = np.dtype(
        {"BOOL": "bool", "FP16": "f2", "FP32": "f4", "FP64": "f8"}.get(kind, kind.lower())
    )
    ends: list[Any] = [False, True]
    if numpy.kind in "iuf":
        limits = np.finfo(numpy) if numpy.kind == "f" else np.iinfo(numpy)
        ends = [limits.min, limits.max]
    values = np.array(ends, numpy)
    assert _echoed(server, library, values).tobytes() == values.tobytes()


@_LIBRARIES
@pytest.mark.parametrize("name", ["any", "rows"])
def test_tensors_without_elements_come_back(server: Served, library: Any, name: str) -> None:
    shape = (0,) if name == "any" else (2, 0)
    found = _echoed(server, library, np.zeros(shape, np.float32), name)
    assert (found.shape, found.dtype) == (shape, np.float32)
    strings = _echoed(server, library, np.zeros(shape, np.object_), name)
    assert strings.shape == shape


@_LIBRARIES
def test_one_element_is_a_tensor_of_one(server: Served, library: Any) -> None:
    assert _echoed(server, library, np.array([7], np.int64)).tolist() == [7]
    assert _echoed(server, library, np.array([[7]], np.int64), "rows").tolist() == [[7]]


@_LIBRARIES
def test_payloads_of_many_megabytes_come_back(server: Served, library: Any) -> None:
    numbers = np.arange(8 << 20, dtype=np.float32)  # 32 MiB
    assert np.array_equal(_echoed(server, library, numbers), numbers)
    texts = _texts(*(b"x" * size for size in (1 << 20, 0, 5 << 20)))
    assert _echoed(server, library, texts).tolist() == texts.tolist()


@_LIBRARIES
def test_a_shape_and_its_bytes_must_agree(server: Served, library: Any) -> None:
    tensor = library.InferInput("IN", [3], "FP32")
    tensor.set_data_from_numpy(np.zeros(3, np.float32))
    tensor.set_shape([4])
    with (
        _client(server, library) as client,
        pytest.raises(InferenceServerException, match="Expected 16, got 12"),
    ):
        client.infer("any_FP32", [tensor])

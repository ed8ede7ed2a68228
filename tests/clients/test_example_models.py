"""The models of `penstock demo --examples`, asked as Triton's client examples ask them."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import (
    InferenceServerException,
    deserialize_bytes_tensor,
    np_to_triton_dtype,
)

from harness.serving import Served

pytestmark = pytest.mark.slow

_VALUES = [11, 7, 5, 3, 2, 0, 1]


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[Any]:
    with grpcclient.InferenceServerClient(server.grpc) as made:
        yield made


def tensor(name: str, array: np.ndarray, library: Any = grpcclient) -> Any:
    made = library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


def vectors(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(16, dtype=dtype).reshape(1, 16), np.ones((1, 16), dtype)


@pytest.mark.contract("CC-12")
@pytest.mark.parametrize("library", [grpcclient, httpclient], ids=["grpc", "http"])
def test_vectors_are_added_and_subtracted(server: Served, library: Any) -> None:
    address = server.grpc if library is grpcclient else server.http
    first, second = vectors(np.int32)
    inputs = [tensor("INPUT0", first, library), tensor("INPUT1", second, library)]
    with library.InferenceServerClient(address) as client:
        result = client.infer("simple", inputs)
    assert (result.as_numpy("OUTPUT0") == first + second).all()
    assert (result.as_numpy("OUTPUT1") == first - second).all()


@pytest.mark.contract("CC-11", "CC-12")
@pytest.mark.parametrize(
    ("model", "datatype", "dtype"),
    [("simple", "INT32", np.int32), ("simple_int8", "INT8", np.int8)],
)
def test_generated_stubs_take_explicit_contents(
    server: Served, model: str, datatype: str, dtype: type
) -> None:
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, values in (("INPUT0", range(16)), ("INPUT1", [1] * 16)):
        request.inputs.add(name=name, datatype=datatype, shape=[1, 16]).contents.int_contents[:] = (
            values
        )
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        response = stub.ModelInfer(request)
        request.model_version = "wrong_specification"
        with pytest.raises(grpc.RpcError, match="failed to get model version from specified"):
            stub.ModelInfer(request)
    answers = [np.frombuffer(raw, dtype).tolist() for raw in response.raw_output_contents]
    assert answers == [list(range(1, 17)), list(range(-1, 15))]


@pytest.mark.contract("CC-12")
def test_texts_of_numbers_are_added_and_subtracted(client: Any) -> None:
    texts = [np.array([[b"%d" % n for n in row]], object) for row in (range(16), [1] * 16)]
    result = client.infer(
        "simple_string", [tensor(f"INPUT{n}", text) for n, text in enumerate(texts)]
    )
    assert [int(text) for text in result.as_numpy("OUTPUT0")[0]] == list(range(1, 17))
    assert [int(text) for text in result.as_numpy("OUTPUT1")[0]] == list(range(-1, 15))


@pytest.mark.contract("CC-11", "CC-12")
def test_generated_stubs_take_explicit_texts(server: Served) -> None:
    request = service_pb2.ModelInferRequest(model_name="simple_string")
    for name, values in (("INPUT0", range(16)), ("INPUT1", [1] * 16)):
        contents = request.inputs.add(name=name, datatype="BYTES", shape=[1, 16]).contents
        contents.bytes_contents[:] = [b"%d" % value for value in values]
    with grpc.insecure_channel(server.grpc) as channel:
        response = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    sums = deserialize_bytes_tensor(response.raw_output_contents[0])
    assert [int(text) for text in sums] == list(range(1, 17))


@pytest.mark.contract("CC-12")
@pytest.mark.parametrize("text", [b"he\x00llo", b"\x00\x01\x02\x03", b"\xff\xfe", b""])
def test_any_bytes_come_back(client: Any, text: bytes) -> None:
    sent = np.array([[text] * 16], object)
    received = client.infer("simple_identity", [tensor("INPUT0", sent)]).as_numpy("OUTPUT0")
    assert received.tolist() == sent.tolist()


def expected(model: str, values: Sequence[int], sequence: int | str) -> list[int]:
    """What the models of Triton's examples answer to a sequence of numbers."""
    if model == "simple_string_dyna_sequence":
        answers = list(accumulate(values))
    else:
        answers = [values[0] + 1, *values[1:]]
    if "dyna" in model:
        answers[-1] += int(sequence)
    return answers


_SEQUENCES: list[tuple[str, int | str]] = [
    ("simple_sequence", 1000),
    ("simple_sequence", str(uuid.UUID(int=7))),
    ("simple_dyna_sequence", 1001),
    ("simple_string_dyna_sequence", "1002"),
]


@pytest.mark.contract("CC-12")
@pytest.mark.parametrize(("model", "sequence"), _SEQUENCES)
@pytest.mark.parametrize("start", [0, 100])
def test_a_sequence_is_answered_one_by_one(
    server: Served, model: str, sequence: int | str, start: int
) -> None:
    values = [start, *_VALUES]
    answers = []
    with httpclient.InferenceServerClient(server.http) as client:
        for number, value in enumerate(values):
            result = client.infer(
                model,
                [tensor("INPUT", np.array([[value]], np.int32), httpclient)],
                sequence_id=sequence,
                sequence_start=number == 0,
                sequence_end=number == len(_VALUES),
            )
            answers.append(int(result.as_numpy("OUTPUT")[0, 0]))
    assert answers == expected(model, values, sequence)


def streamed(client: Any, requests: Sequence[dict[str, Any]], count: int) -> dict[str, list[Any]]:
    """The results of requests on one stream, by id."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    try:
        for request in requests:
            client.async_stream_infer(**request)
        found: dict[str, list[Any]] = {}
        for _ in range(count):
            result, error = answers.get(timeout=30)
            assert error is None
            found.setdefault(result.get_response().id, []).append(result)
    finally:
        client.stop_stream()
    return found


@pytest.mark.contract("CC-12")
def test_sequences_interleave_on_one_stream(client: Any) -> None:
    requests = [
        {
            "model_name": model,
            "inputs": [tensor("INPUT", np.array([[value]], np.int32))],
            "request_id": f"{kind}_{number}",
            "sequence_id": sequence,
            "sequence_start": number == 0,
            "sequence_end": number == len(_VALUES) - 1,
        }
        for kind, (model, sequence) in enumerate(_SEQUENCES)
        for number, value in enumerate(_VALUES)
    ]
    found = streamed(client, requests, len(requests))
    for kind, (model, sequence) in enumerate(_SEQUENCES):
        results = [found[f"{kind}_{number}"][0] for number in range(len(_VALUES))]
        answers = [int(result.as_numpy("OUTPUT")[0, 0]) for result in results]
        assert answers == expected(model, _VALUES, sequence)


@pytest.mark.contract("CC-12")
def test_each_element_comes_in_a_response_of_its_own(client: Any) -> None:
    """As for the example of decoupled models, at another pace."""
    inputs = [
        tensor("IN", np.arange(100, 110, dtype=np.int32)),
        tensor("DELAY", np.ones(10, np.uint32)),
        tensor("WAIT", np.array([1], np.uint32)),
    ]
    request = {"model_name": "repeat_int32", "inputs": inputs, "request_id": "0"}
    results = streamed(client, [request], 10)["0"]
    assert [result.as_numpy("OUT").tolist() for result in results] == [[n] for n in range(100, 110)]
    assert [int(result.as_numpy("IDX")[0]) for result in results] == list(range(10))


@pytest.mark.contract("CC-12")
@pytest.mark.parametrize("library", [grpcclient, httpclient], ids=["grpc", "http"])
def test_numbers_come_back_to_each_new_client(server: Served, library: Any) -> None:
    numbers = np.arange(16, dtype=np.int32).reshape(1, 16)
    address = server.grpc if library is grpcclient else server.http
    answers = []
    for _ in range(3):
        with library.InferenceServerClient(address) as client:
            result = client.infer("custom_identity_int32", [tensor("INPUT0", numbers, library)])
            answers.append(result.as_numpy("OUTPUT0").tolist())
    assert answers == [numbers.tolist()] * 3


@pytest.mark.contract("CC-12")
def test_a_number_comes_as_often_as_it_says(client: Any) -> None:
    requests = [
        {
            "model_name": "square_int32",
            "inputs": [tensor("IN", np.array([number], np.int32))],
            "request_id": str(number),
        }
        for number in (4, 2, 0, 1)
    ]
    found = streamed(client, requests, 7)
    assert {id: len(results) for id, results in found.items()} == {"4": 4, "2": 2, "1": 1}
    assert found["4"][3].as_numpy("OUT").tolist() == [4]


@pytest.mark.contract("CC-12")
def test_a_text_that_is_no_number_is_no_id_of_the_summing_model(client: Any) -> None:
    one = [tensor("INPUT", np.array([[1]], np.int32))]
    with pytest.raises(InferenceServerException, match="the sequence id must be a number"):
        client.infer(
            "simple_string_dyna_sequence",
            one,
            sequence_id="seven",
            sequence_start=True,
            sequence_end=True,
        )

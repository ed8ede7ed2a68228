"""Remotes that are away, slow, of another kind, or answer what is none."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.remote.bad_server import (
    BadServer,
    Frames,
    bad_server,
    begun,
    ended,
    inferred,
    message,
    ready,
)
from backends.remote.far_server import entry
from penstock.core.config import Input, ModelConfig, Output, TransactionPolicy
from penstock.core.delivery import deliver
from penstock.core.errors import (
    ExhaustedError,
    InferenceError,
    InternalError,
    ModelLoadError,
    UnavailableError,
)
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.http2.frames import (
    END_HEADERS,
    END_STREAM,
    ErrorCode,
    FrameType,
    frame,
    goaway,
    rst_stream,
    settings,
)
from penstock.http2.hpack import encode
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import orca_load_report_pb2 as orca
from penstock.testing import RunningInstance, running
from penstock_backends.remote import RemoteBackend

INPUT = {"IN": np.zeros(2, np.float32)}


def declared(address: str, *, decoupled: bool = False, **parameters: str) -> ModelConfig:
    """An entry that loads whether its remote is there or not."""
    return replace(
        entry("m", address, **{"health_interval_ms": "20", **parameters}),
        input=(Input("IN", DataType.FP32, dims=(-1,)),),
        output=(Output("OUT", DataType.FP32, dims=(-1,)),),
        model_transaction_policy=TransactionPolicy(decoupled=decoupled),
    )


def good(number: int, method: str) -> Frames:
    """Two numbers, or what a server without the other methods says."""
    if method not in ("ModelInfer", "ModelStreamInfer"):
        return [ended(number, 12, "unknown")]
    answer = pb.ModelInferResponse(raw_output_contents=[bytes(8)])
    answer.outputs.add(name="OUT", datatype="FP32", shape=[2])
    return inferred(number, answer)


@asynccontextmanager
async def loaded(
    tmp_path: Path, *servers: BadServer, **parameters: Any
) -> AsyncIterator[RunningInstance]:
    address = ",".join(server.address for server in servers)
    async with running(RemoteBackend, declared(address, **parameters), tmp_path) as instance:
        yield instance


async def only(instance: RunningInstance, **fields: Any) -> InferenceResponse:
    [response] = [one async for one in instance.infer(INPUT, **fields)]
    return response


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def other(answer: Any) -> Any:
    """A server whose `ModelInfer` and `ModelStreamInfer` answer so."""

    def answered(number: int, method: str) -> Iterable[bytes]:
        return answer(number) if "Infer" in method else [ended(number, 12, "unknown")]

    return answered


# -- away ------------------------------------------------------------------------------------------


async def test_remote_that_is_away_refuses_the_load(tmp_path: Path) -> None:
    port = closed_port()
    with pytest.raises(ModelLoadError, match=rf"grpc://127.0.0.1:{port}: .*declare 'input'"):
        async with running(RemoteBackend, entry("m", f"grpc://127.0.0.1:{port}"), tmp_path):
            pass


async def test_declared_model_is_loaded_and_not_ready(tmp_path: Path) -> None:
    port = closed_port()
    async with running(RemoteBackend, declared(f"grpc://127.0.0.1:{port}"), tmp_path) as instance:
        told = f"remote grpc://127.0.0.1:{port}: connection refused"
        assert instance.backend.unready() == told
        with pytest.raises(UnavailableError, match=told):
            await only(instance)


async def test_remote_that_comes_is_found(tmp_path: Path) -> None:
    port = closed_port()
    async with running(RemoteBackend, declared(f"grpc://127.0.0.1:{port}"), tmp_path) as instance:
        server = await asyncio.start_server(BadServer(good).serve, "127.0.0.1", port)
        await until(lambda: not instance.backend.unready())
        assert (await only(instance)).outputs["OUT"].shape == (2,)
        server.close()


async def test_http_port_is_named(tmp_path: Path) -> None:
    async with (
        bad_server(good, b"HTTP/1.1 400 Bad Request\r\n\r\n") as server,
        loaded(tmp_path, server) as instance,
    ):
        assert "it speaks HTTP/1, not gRPC" in instance.backend.unready()


async def test_remote_that_never_greets_is_away(tmp_path: Path) -> None:
    async with (
        bad_server(good, b"") as server,
        loaded(tmp_path, server, connect_timeout_ms="50") as instance,
    ):
        assert "0.05 s" in instance.backend.unready()


async def test_model_that_is_not_ready_there_is_not_ready_here(tmp_path: Path) -> None:
    def resting(number: int) -> Frames:
        return [begun(number), message(number, b""), ended(number)]

    async with bad_server(good) as server:
        server.ready = resting
        async with loaded(tmp_path, server) as instance:
            assert "model 'm' is not ready there" in instance.backend.unready()


async def test_frozen_remote_is_given_up(tmp_path: Path) -> None:
    """It neither answers calls nor questions after its health: calls under way fail."""
    async with bad_server(other(lambda _: ())) as server:
        limits = {"connect_timeout_ms": "100", "silence_ms": "200"}
        async with loaded(tmp_path, server, **limits) as instance:
            server.ready = lambda number: ()
            with pytest.raises(UnavailableError, match=r"nothing has come for 0\.2 s"):
                await only(instance)
            assert "no answer for" in instance.backend.unready()


# -- several ---------------------------------------------------------------------------------------


async def test_call_goes_to_another_where_the_first_is_away(tmp_path: Path) -> None:
    async with (
        bad_server(good) as one,
        bad_server(other(lambda n: [rst_stream(n, ErrorCode.REFUSED_STREAM)])) as two,
        loaded(tmp_path, one, two) as instance,
    ):
        for _ in range(20):
            await only(instance)
        assert "ModelInfer" in two.calls
        assert instance.backend.metrics()["remote_retries_total"] > 0


async def test_unavailable_goes_to_another_and_takes_the_address_out(tmp_path: Path) -> None:
    async with (
        bad_server(good) as one,
        bad_server(other(lambda n: [ended(n, 14, "no room")])) as two,
        loaded(tmp_path, one, two, health_interval_ms="60000") as instance,
    ):
        for _ in range(40):
            await only(instance)
        assert two.calls.count("ModelInfer") == 5
        up = f'remote_up{{address="{two.address}"}}'
        assert instance.backend.metrics()[up] == 0


async def test_single_address_is_not_asked_again_and_stays(tmp_path: Path) -> None:
    async with (
        bad_server(other(lambda n: [ended(n, 14, "no room")])) as server,
        loaded(tmp_path, server) as instance,
    ):
        for _ in range(10):
            with pytest.raises(UnavailableError, match=r"^no room$"):
                await only(instance)
        assert server.calls.count("ModelInfer") == 10


async def test_stream_that_has_begun_is_never_asked_again(tmp_path: Path) -> None:
    answer = pb.ModelStreamInferResponse()
    answer.infer_response.id = "x"

    def cut(number: int) -> Frames:
        return [begun(number), message(number, answer.SerializeToString()), ended(number, 14, "ha")]

    async with (
        bad_server(other(cut)) as one,
        bad_server(other(cut)) as two,
        loaded(tmp_path, one, two, decoupled=True) as instance,
    ):
        responses = instance.infer(INPUT)
        await anext(responses)
        with pytest.raises(UnavailableError, match=r"^ha$"):
            await anext(responses)
        assert (one.calls + two.calls).count("ModelStreamInfer") == 1


async def test_errors_of_the_request_go_to_nobody_else(tmp_path: Path) -> None:
    failing = other(lambda n: [ended(n, 3, "bad input")])
    async with (
        bad_server(failing) as one,
        bad_server(failing) as two,
        loaded(tmp_path, one, two) as instance,
    ):
        with pytest.raises(InferenceError, match="bad input"):
            await only(instance)
        assert (one.calls + two.calls).count("ModelInfer") == 1


async def test_lost_connection_fails_over(tmp_path: Path) -> None:
    async with (
        bad_server(other(lambda _: ())) as one,
        bad_server(good) as two,
        loaded(tmp_path, one, two, health_interval_ms="60000") as instance,
    ):
        calls = [asyncio.create_task(only(instance)) for _ in range(6)]
        await until(lambda: "ModelInfer" in one.calls)
        one.cut()
        found = await asyncio.gather(*calls)
        assert len(found) == 6


async def test_server_that_goes_away_in_order_loses_nothing(tmp_path: Path) -> None:
    def going(number: int) -> Frames:
        return [goaway(0, ErrorCode.NO_ERROR, "bye")]

    async with (
        bad_server(other(going)) as one,
        bad_server(good) as two,
        loaded(tmp_path, one, two) as instance,
    ):
        for _ in range(10):
            await only(instance)


async def test_sequence_stays_where_it_began(tmp_path: Path) -> None:
    async with (
        bad_server(good) as one,
        bad_server(good) as two,
        loaded(tmp_path, one, two, health_interval_ms="60000") as instance,
    ):
        await only(instance, correlation_id=5, sequence_start=True)
        for _ in range(6):
            await only(instance, correlation_id=5)
        await only(instance, correlation_id=5, sequence_end=True)
        counts = [server.calls.count("ModelInfer") for server in (one, two)]
        assert sorted(counts) == [0, 8]


async def test_load_that_an_answer_reports_is_weighed(tmp_path: Path) -> None:
    report = orca.OrcaLoadReport(application_utilization=0.9).SerializeToString()
    field = (b"endpoint-load-metrics-bin", base64.b64encode(report))
    async with bad_server(good) as one, bad_server(good) as two:
        one.ready = lambda number: ready(number, field)
        async with loaded(tmp_path, one, two, health_interval_ms="60000") as instance:
            for _ in range(12):
                await only(instance)
            assert one.calls.count("ModelInfer") == 0


@pytest.mark.parametrize("value", [b"!!!", b"AAAA", b"CQAAAAAAAPh/"])
async def test_report_that_is_none_changes_nothing(tmp_path: Path, value: bytes) -> None:
    async with bad_server(good) as one, bad_server(good) as two:
        one.ready = lambda number: ready(number, (b"endpoint-load-metrics-bin", value))
        async with loaded(tmp_path, one, two, health_interval_ms="60000") as instance:
            for _ in range(8):
                await only(instance)
            assert one.calls.count("ModelInfer") == 4


# -- answers that are none -------------------------------------------------------------------------


def _tensor(datatype: str, shape: list[int], data: bytes) -> Any:
    answer = pb.ModelInferResponse(raw_output_contents=[data])
    answer.outputs.add(name="OUT", datatype=datatype, shape=shape)
    return other(lambda number: inferred(number, answer))


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "told"),
    [
        ("FP32", [3], bytes(8), "is FP32 of shape [3], but holds 8 bytes"),
        ("FP32", [-2], bytes(8), "has the shape [-2]"),
        ("FP99", [2], bytes(8), "has the unknown datatype 'FP99'"),
        ("BYTES", [2], b"\x01\x00\x00\x00a", "is BYTES of shape [2], but holds 1 strings"),
        ("BYTES", [1], b"\xff\x00\x00\x00a", "incomplete string data for output 'OUT'"),
        ("FP32", [1 << 40, 1 << 40], bytes(8), "but holds 8 bytes"),
    ],
)
async def test_tensors_that_are_not_what_they_say(
    tmp_path: Path, datatype: str, shape: list[int], data: bytes, told: str
) -> None:
    async with (
        bad_server(_tensor(datatype, shape, data)) as server,
        loaded(tmp_path, server) as instance,
    ):
        with pytest.raises(InternalError) as caught:
            await only(instance)
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ([bytes(4)], "is FP32 of shape [2], but holds 4 bytes"),
        ([bytes(8), bytes(8)], "answered with 2 raw contents for 1 outputs"),
    ],
)
async def test_answer_that_begins_as_good_ones_did_is_looked_at(
    tmp_path: Path, raw: list[bytes], told: str
) -> None:
    answer = pb.ModelInferResponse(raw_output_contents=[bytes(8)])
    answer.outputs.add(name="OUT", datatype="FP32", shape=[2])
    async with (
        bad_server(other(lambda number: inferred(number, answer))) as server,
        loaded(tmp_path, server) as instance,
    ):
        for _ in range(4):
            await only(instance)
        answer.raw_output_contents[:] = raw
        with pytest.raises(InternalError) as caught:
            await only(instance)
    assert told in caught.value.message


async def test_typed_contents_are_read(tmp_path: Path) -> None:
    answer = pb.ModelInferResponse()
    output = answer.outputs.add(name="OUT", datatype="FP32", shape=[2])
    output.contents.fp32_contents.extend([1.5, 2.5])
    async with (
        bad_server(other(lambda number: inferred(number, answer))) as server,
        loaded(tmp_path, server) as instance,
    ):
        assert (await only(instance)).outputs["OUT"].numpy().tolist() == [1.5, 2.5]


def _whole(*parts: Any) -> Any:
    return other(lambda number: [part(number) for part in parts])


@pytest.mark.parametrize(
    ("parts", "kind", "told"),
    [
        ((begun, lambda n: message(n, b"\xff\xff"), ended), InternalError, "is no message"),
        ((begun, ended), InternalError, "has answered nothing"),
        ((begun, lambda n: message(n, b"x", compressed=1)), InternalError, "compresses"),
        (
            (begun, lambda n: message(n, b"x", claimed=1 << 31)),
            InternalError,
            "2147483648 bytes is longer than max_response_bytes, 1073741824",
        ),
        ((lambda n: ended(n, 16, "who?"),), UnavailableError, "does not know this server: who"),
        ((lambda n: rst_stream(n, ErrorCode.INTERNAL_ERROR),), UnavailableError, "INTERNAL_ERROR"),
        (
            (lambda n: begun(n, (b"x", b"y" * 70_000)),),
            UnavailableError,
            "header block is too large",
        ),
        ((lambda n: b"\xff" * 64,), UnavailableError, "not an answer of gRPC"),
    ],
)
async def test_answers_that_are_none(
    tmp_path: Path, parts: Any, kind: type[InferenceError], told: str
) -> None:
    async with (
        bad_server(_whole(*parts)) as server,
        loaded(tmp_path, server) as instance,
    ):
        with pytest.raises(kind, match=told):
            await only(instance)


async def test_retry_after_passes_on(tmp_path: Path) -> None:
    full = other(lambda n: [ended(n, 8, "full", (b"retry-after", b"7"))])
    async with bad_server(full) as server, loaded(tmp_path, server) as instance:
        with pytest.raises(ExhaustedError, match="full") as caught:
            await only(instance)
    assert caught.value.retry_after == 7


async def test_proxy_that_answers_http_is_named(tmp_path: Path) -> None:
    def lost(number: int) -> Frames:
        block = encode([(b":status", b"502")])
        return [frame(FrameType.HEADERS, END_HEADERS | END_STREAM, number, block)]

    async with bad_server(other(lost)) as server, loaded(tmp_path, server) as instance:
        with pytest.raises(UnavailableError, match="HTTP status 502"):
            await only(instance)


async def test_endless_stream_waits_for_its_reader_and_ends_with_it(tmp_path: Path) -> None:
    answer = pb.ModelStreamInferResponse()
    answer.infer_response.outputs.add(name="OUT", datatype="FP32", shape=[2])
    answer.infer_response.raw_output_contents.append(bytes(8))
    one = answer.SerializeToString()

    def endless(number: int) -> Frames:
        return [begun(number), *[message(number, one)] * 5000]

    async with (
        bad_server(other(endless)) as server,
        loaded(tmp_path, server, decoupled=True) as instance,
    ):
        responses = instance.infer(INPUT)
        for _ in range(100):
            await anext(responses)
        await responses.aclose()
        async with asyncio.timeout(10):
            await server.reset.wait()
        assert len(server.resets) == 1


async def test_calls_beyond_the_limit_of_streams_wait(tmp_path: Path) -> None:
    few = settings([(3, 2)])
    async with bad_server(good, few) as server, loaded(tmp_path, server) as instance:
        found = await asyncio.gather(*(only(instance) for _ in range(50)))
    assert len(found) == 50


async def test_reader_that_leaves_before_the_connection_is_there(tmp_path: Path) -> None:
    async with bad_server(good) as server:
        config = declared(server.address)
        async with running(RemoteBackend, config, tmp_path) as instance:
            server.cut()
            request = InferenceRequest("m", inputs={"IN": Tensor.from_numpy(INPUT["IN"])})
            (outcome,) = await instance.backend.execute([request])
            stream = ResponseStream()
            deliver(outcome, stream)
            stream.close()
            numbers = instance.backend.metrics()
    assert numbers[f'remote_calls_in_flight{{address="{server.address}"}}'] == 0

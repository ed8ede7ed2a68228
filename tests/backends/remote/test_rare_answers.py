"""Remotes that are right, and answer in rare forms: of frames, of messages, of metadata."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from backends.remote.bad_server import Frames, bad_server, begun, ended, message
from backends.remote.far_server import entry
from backends.remote.test_failures import INPUT, closed_port, good, loaded, only, other
from penstock.core.errors import InferenceError, InternalError, ModelLoadError
from penstock.http2.frames import END_HEADERS, PADDED, FrameType, frame, ping
from penstock.http2.hpack import encode
from penstock.protocol import grpc_service_pb2 as pb
from penstock.testing import running
from penstock_backends.remote import RemoteBackend


def _answer() -> bytes:
    answer = pb.ModelInferResponse(raw_output_contents=[bytes(8)])
    answer.outputs.add(name="OUT", datatype="FP32", shape=[2])
    return bytes(answer.SerializeToString())


def _data(number: int, payload: bytes, flags: int = 0) -> bytes:
    return frame(FrameType.DATA, flags, number, payload)


def _prefixed(data: bytes) -> bytes:
    return struct.pack(">BL", 0, len(data)) + data


def _padded(number: int) -> list[bytes]:
    body = _prefixed(_answer())
    return [begun(number), _data(number, b"\x03" + body + bytes(3), PADDED), ended(number)]


def _cut(number: int) -> list[bytes]:
    body = _prefixed(_answer())
    return [begun(number), _data(number, body[:3]), _data(number, body[3:]), ended(number)]


def _continued(number: int) -> list[bytes]:
    block = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
    parts = [
        frame(FrameType.HEADERS, 0, number, block[:5]),
        frame(FrameType.CONTINUATION, END_HEADERS, number, block[5:]),
    ]
    return [*parts, ping(b"12345678"), message(number, _answer()), ended(number)]


@pytest.mark.parametrize("answer", [_padded, _cut, _continued])
async def test_rare_forms_of_frames(tmp_path: Path, answer: Any) -> None:
    async with bad_server(other(answer)) as server, loaded(tmp_path, server) as instance:
        for _ in range(3):
            assert (await only(instance)).outputs["OUT"].shape == (2,)


async def test_several_messages_in_one_frame(tmp_path: Path) -> None:
    one = pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse.FromString(_answer()))
    body = _prefixed(one.SerializeToString())

    def answer(number: int) -> list[bytes]:
        return [
            begun(number),
            _data(number, body * 3 + body[:4]),
            _data(number, body[4:]),
            ended(number),
        ]

    async with (
        bad_server(other(answer)) as server,
        loaded(tmp_path, server, decoupled=True) as instance,
    ):
        assert len([found async for found in instance.infer(INPUT)]) == 4


async def test_error_in_a_streamed_message_ends_it(tmp_path: Path) -> None:
    one = pb.ModelStreamInferResponse(error_message="it broke")

    def answer(number: int) -> list[bytes]:
        return [begun(number), message(number, one.SerializeToString())]

    async with (
        bad_server(other(answer)) as server,
        loaded(tmp_path, server, decoupled=True) as instance,
    ):
        with pytest.raises(InferenceError, match="it broke"):
            await anext(instance.infer(INPUT))


def _metadata(*tensors: tuple[str, str]) -> Any:
    answer = pb.ModelMetadataResponse(name="m")
    for name, datatype in tensors:
        answer.inputs.add(name=name, datatype=datatype, shape=[-1])
        answer.outputs.add(name="OUT", datatype=datatype, shape=[-1])

    def told(number: int, method: str) -> Frames:
        if method != "ModelMetadata":
            return good(number, method)
        return [begun(number), message(number, answer.SerializeToString()), ended(number)]

    return told


async def test_metadata_is_enough_of_a_configuration(tmp_path: Path) -> None:
    async with (
        bad_server(_metadata(("IN", "FP32"))) as server,
        running(RemoteBackend, entry("m", server.address), tmp_path) as instance,
    ):
        assert [(one.name, one.dims) for one in instance.config.input] == [("IN", (-1,))]
        assert (await only(instance)).outputs["OUT"].shape == (2,)


async def test_addresses_that_are_away_do_not_hold_up_the_load(tmp_path: Path) -> None:
    async with bad_server(_metadata(("IN", "FP32"))) as server, bad_server(good, b"") as silent:
        address = f"{silent.address},grpc://127.0.0.1:{closed_port()},{server.address}"
        given = entry("m", address, connect_timeout_ms="500")
        async with running(RemoteBackend, given, tmp_path) as instance:
            assert instance.config.input[0].name == "IN"
            assert (await only(instance)).outputs["OUT"].shape == (2,)


@pytest.mark.parametrize(
    ("tensors", "told"),
    [((), "names no inputs"), ((("IN", "FP99"),), "unknown datatype 'FP99'")],
)
async def test_metadata_that_says_nothing_refuses_the_load(
    tmp_path: Path, tensors: Any, told: str
) -> None:
    async with bad_server(_metadata(*tensors)) as server:
        with pytest.raises(ModelLoadError, match=told):
            async with running(RemoteBackend, entry("m", server.address), tmp_path):
                pass


@pytest.mark.parametrize(
    "data", [b"\x32\xff\xff\xff\x7f", b"\x31" + bytes(8), b"\x32" + b"\xff" * 12, b"\x32\x80"]
)
async def test_large_messages_that_are_none(tmp_path: Path, data: bytes) -> None:
    filler = b"\x0a\x80\x80\x08" + b"x" * (1 << 17)  # a name, in front of it

    def answer(number: int) -> list[bytes]:
        return [begun(number), message(number, filler + data), ended(number)]

    async with bad_server(other(answer)) as server, loaded(tmp_path, server) as instance:
        with pytest.raises(InternalError, match="is no message"):
            await only(instance)

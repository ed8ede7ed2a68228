"""The tool's own gRPC and HTTP clients: TLS, other servers, and bytes that none should send."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.remote.bad_server import begun, ended
from penstock.http2.frames import (
    END_STREAM,
    ErrorCode,
    FrameType,
    frame,
    rst_stream,
    settings,
)
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.perf.errors import Status
from penstock_client.perf.wire.asking import ask_grpc
from penstock_client.perf.wire.call import Call, Wire
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.perf.wire.grpc import GrpcWire, request_head
from penstock_client.perf.wire.http import HttpWire, request
from penstock_client.perf.wire.outgoing import framed
from perf.conftest import Perf
from perf.failing_server import failing_server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `cert.pem` and `key.pem` for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["ca", "unverified", "none"])
def test_tls_with_a_certificate_to_trust_or_any(perf: Perf, certificate: Path, trust: str) -> None:
    key, chain = ((certificate / name).read_bytes() for name in ("key.pem", "cert.pem"))
    options = {
        "ca": ["--tls-ca", str(certificate / "cert.pem")],
        "unverified": ["--tls-unverified"],
        "none": [],
    }
    with failing_server(grpc.ssl_server_credentials([(key, chain)])) as server:
        words = ["-u", f"https://{server.address}", "-n", "10", *options[trust]]
        ran = perf("-m", "moody", *words)
    if trust == "none":
        assert ran.status == Status.UNREACHABLE
        assert "certificate verify failed" in ran.printed
    else:
        assert (ran.point["requests"], ran.point["failed"]) == (5, 5)


def test_no_more_streams_than_the_server_allows(perf: Perf) -> None:
    options = [("grpc.max_concurrent_streams", 2)]
    with failing_server(options=options) as server:
        ran = perf(
            "-m", "moody", "-u", server.address, "-n", "60", "-c", "16", "--connections", "1"
        )
    assert (ran.point["requests"], ran.point["failed"]) == (30, 30)


@pytest.mark.parametrize(
    ("ago", "times", "ends"), [(0, 150, ""), (60, 1, "the server reset the stream, code 7")]
)
def test_a_refused_call_is_sent_again_for_a_while(
    peer: _Peer, ago: float, times: int, ends: str
) -> None:
    """A server that is busy takes its time to forget streams that have ended."""
    thread = threading.Thread(target=peer.refuse, args=(times,))
    thread.start()
    heard = _Heard()
    wire = GrpcWire(peer.endpoint, heard)
    try:
        sent = framed(request_head(peer.endpoint, "/x/Y", {}), b"body")
        begin = time.perf_counter() - ago
        wire.start(Call(0, 0, begin, begin, streamed=False), sent)
        wire.flush()
        while not heard.ends:
            wire.read(wait=True)
    finally:
        wire.close()
        thread.join()
    assert heard.ends == [ends]


class _Heard:
    """A listener that counts."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.lost: list[str] = []

    def on_response(self, call: Call, now: float) -> None:
        call.responses += 1

    def on_end(self, call: Call, now: float, error: str) -> None:
        self.ends.append(error)

    def on_lost(self, wire: Wire, reason: str) -> None:
        self.lost.append(reason)


class _Peer:
    """A listening socket that answers each connection with the same bytes, and closes it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.answer = b""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.listener.getsockname()[1])

    def serve_one(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(self.answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    def refuse(self, times: int) -> None:
        """Serve a connection whose calls are refused so often, and answered then."""
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rb") as came:
            came.read(24)  # the preface
            connection.sendall(settings([]))
            while head := came.read(9):
                came.read(int.from_bytes(head[:3], "big"))
                kind, flags, number = head[3], head[4], int.from_bytes(head[5:], "big")
                if kind == FrameType.DATA and flags & END_STREAM:
                    refused = rst_stream(number, ErrorCode.REFUSED_STREAM)
                    connection.sendall(refused if times else begun(number) + ended(number))
                    times -= 1


@pytest.fixture(scope="module")
def peer() -> Iterator[_Peer]:
    peer = _Peer()
    yield peer
    peer.listener.close()


@pytest.mark.parametrize("kind", ["grpc", "http"])
@given(
    answer=st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=60).map(lambda data: b"HTTP/1.1 200 OK\r\n" + data),
        st.binary(max_size=60).map(
            lambda data: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + data
        ),
        st.lists(
            st.tuples(st.integers(0, 12), st.integers(0, 255), st.binary(max_size=30)), max_size=6
        ).map(
            lambda frames: b"".join(
                len(data).to_bytes(3, "big") + bytes((kind, flags, 0, 0, 0, 1)) + data
                for kind, flags, data in frames
            )
        ),
    )
)
def test_any_bytes_end_the_call_once(peer: _Peer, kind: str, answer: bytes) -> None:
    assert len(_ends(peer, kind, answer)) == 1


def test_call_that_ends_without_headers_has_no_status(peer: _Peer) -> None:
    ending = b"\x00\x00\x00\x01\x05\x00\x00\x00\x01"  # HEADERS, END_STREAM and END_HEADERS
    assert _ends(peer, "grpc", ending) == ["the call ended without a status"]


def test_large_answer_to_a_question_is_read_whole(peer: _Peer) -> None:
    """The load passes over answers as large as that."""
    peer.answer = _in_frames(bytes(100_000)) + _WELL
    thread = threading.Thread(target=peer.serve_one)
    thread.start()
    assert ask_grpc(peer.endpoint, "/x/Y", b"", {}) == bytes(100_000)
    thread.join()


def test_large_error_of_a_stream_is_the_error_of_its_call(peer: _Peer) -> None:
    error = pb.ModelStreamInferResponse(error_message="no " * 30_000).SerializeToString()
    (end,) = _ends(peer, "grpc", _in_frames(error) + _WELL)
    assert end.startswith("no no ")


_WELL = frame(0x1, 0x5, 1, b"\x00\x0bgrpc-status\x010")  # HEADERS, END_STREAM and END_HEADERS


def _in_frames(message: bytes) -> bytes:
    """A message of gRPC in frames of DATA on stream 1."""
    data = b"\0" + len(message).to_bytes(4, "big") + message
    return b"".join(frame(0, 0, 1, data[at : at + 16_384]) for at in range(0, len(data), 16_384))


_CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def test_chunk_of_less_than_nothing_ends_the_call(peer: _Peer) -> None:
    assert _ends(peer, "http", _CHUNKED + b"-6\r\n\r\n") == [
        "not an answer of HTTP: a chunk of no size"
    ]


def test_trailers_behind_the_last_chunk_belong_to_the_answer(peer: _Peer) -> None:
    answer = _CHUNKED + b"9\r\ndata: 1\n\n\r\n0\r\nServer-Timing: a\r\nX: b\r\n\r\n"
    heard = _heard(peer, "http", answer)
    assert (heard.ends, heard.lost) == ([""], ["the server closed the connection"])


def test_refused_stream_says_why(peer: _Peer) -> None:
    body = b'{"error": {"message": "too many"}}'
    head = b"HTTP/1.1 429 No\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    assert _ends(peer, "http", head % len(body) + body) == ["HTTP status 429: too many"]


def _ends(peer: _Peer, kind: str, answer: bytes) -> list[str]:
    """The errors of the ends of one call that is answered so."""
    return _heard(peer, kind, answer).ends


def _heard(peer: _Peer, kind: str, answer: bytes) -> _Heard:
    """What is heard of one call that is answered so."""
    peer.answer = answer
    thread = threading.Thread(target=peer.serve_one)
    thread.start()
    heard = _Heard()
    wire: Wire = (
        GrpcWire(peer.endpoint, heard) if kind == "grpc" else HttpWire(peer.endpoint, heard)
    )
    try:
        if kind == "grpc":
            sent = framed(request_head(peer.endpoint, "/x/Y", {}), b"body")
        else:
            sent = request(b"POST / HTTP/1.1\r\n", b"body")
        wire.start(Call(0, 0, 0.0, 0.0, streamed=True), sent)
        wire.flush()
        while not heard.lost:
            wire.read(wait=True)
    finally:
        wire.close()
        thread.join()
    return heard

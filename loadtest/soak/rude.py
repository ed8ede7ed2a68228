"""Clients that leave, stall, vanish, or send what no server should be sent."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import grpc
import numpy as np

from loadtest.soak.answers import FORMULAS
from loadtest.soak.ledger import CallError
from loadtest.soak.traffic import Traffic
from loadtest.soak.wire import GrpcClient, message, output

_RESET = struct.pack("ii", 1, 0)
_REFUSED = frozenset({"400", "404", "413", "431", "closed", "INVALID_ARGUMENT", "NOT_FOUND"})
_NOT_PARSED = _REFUSED | {"500", "INTERNAL"}  # as the real server answers those


@dataclass(slots=True)
class Rude:
    """Each method is one client; what it does to others shows in their calls."""

    traffic: Traffic
    grpc_port: int
    http_port: int

    # -- leaving -------------------------------------------------------------------------------

    async def cancel(self) -> None:
        """Cancel a unary call at a random moment."""
        model = self.traffic.chance.choice(("victim", "coro", "batched", "chain", "asker"))
        x, begun, ledger = self.traffic.tensor(model), time.monotonic(), self.traffic.ledger
        call = self.traffic.grpc.begin(message(model, {"IN": x}))
        asyncio.get_running_loop().call_later(self.traffic.chance.random() * 0.02, call.cancel)
        kind = "cancelled unary"
        try:
            response = await call
        except asyncio.CancelledError:
            ledger.expected(kind, "cancelled by the client", "CANCELLED")
        except grpc.aio.AioRpcError as error:
            ledger.failed(kind, model, begun, CallError(error.code().name, str(error.details())))
        else:
            if np.array_equal(output(response, "OUT"), FORMULAS[model](x)):
                ledger.right(kind)
            else:
                ledger.wrong(kind, model)

    async def cancel_stream(self) -> None:
        """Cancel a stream of numbers without end behind some of them."""
        count = self.traffic.chance.randrange(1, 30)
        reading = self.traffic.read_numbers(count)
        await self.traffic.checked("cancelled stream", "drip", reading)

    async def read_slowly(self) -> None:
        """Read a stream that is made faster than it is read."""
        reading = self.traffic.read_numbers(50, pause=0.1)
        await self.traffic.checked("slow reader", "drip", reading)

    # -- vanishing -----------------------------------------------------------------------------

    async def vanish(self) -> None:
        """Have the connection reset amid a stream, or amid a request over HTTP."""
        ways = self._vanish_from_stream, self._vanish_from_events, self._vanish_amid_body
        await self.traffic.checked("vanished client", "drip", self.traffic.chance.choice(ways)())

    async def _vanish_from_stream(self) -> None:
        relay = await _Relay.open(self.grpc_port)
        client = GrpcClient(f"127.0.0.1:{relay.port}")
        try:
            await self.traffic.read_numbers(5, client=client, leave=relay.reset)
        finally:
            await client.close()
            await relay.close()

    async def _vanish_from_events(self) -> None:
        body = json.dumps({"TEXT": "never read to its end" * 20})
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        writer.write(_post("/v2/models/spell/generate_stream", len(body)) + body.encode())
        await reader.readline()
        _reset(writer)

    async def _vanish_amid_body(self) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
        writer.write(_post("/v2/models/plain/infer", 1 << 20) + b"{" * 1000)
        await writer.drain()
        _reset(writer)

    # -- what no server should be sent -----------------------------------------------------------

    async def malformed(self) -> None:
        """Something that must be refused."""
        refusals: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("no JSON", lambda: self._post("/v2/models/plain/infer", b"{nope")),
            ("no request", lambda: self._post("/v2/models/plain/infer", b"[1]")),
            ("unknown model", lambda: self._post("/v2/models/nope/infer", b'{"inputs": []}')),
            ("wrong lengths", self._wrong_lengths),
            ("no HTTP", lambda: self._raw(self.http_port, b"\x16\x03\x01 nonsense\r\n\r\n")),
            ("10 GB announced", self._huge_length),
            ("1 MiB of head", self._huge_head),
            ("no HTTP/2", lambda: self._raw(self.grpc_port, b"GET / HTTP/1.1\r\n\r\n")),
            ("no message", lambda: self.traffic.grpc.raw("ModelInfer", b"\xff\xff\xff")),
            ("unknown model", lambda: self._infer("nope", (4,))),
            ("wrong shape", lambda: self._infer("batched", (9, 9))),
            ("wrong size", self._wrong_size),
        ]
        cause, attempt = self.traffic.chance.choice(refusals)
        await self._refused(cause, attempt())

    async def huge_json(self) -> None:
        """A JSON body of 70 MB, more than is taken by default."""
        numbers = b"1," * (35 << 20)
        await self._refused("70 MB of JSON", self._post("/v2/models/plain/infer", numbers))

    async def _refused(self, cause: str, attempt: Awaitable[object]) -> None:
        ledger, kind = self.traffic.ledger, "malformed or too large"
        allowed = _NOT_PARSED if cause in ("no message", "no JSON", "no request") else _REFUSED
        try:
            await asyncio.wait_for(attempt, 65)
        except TimeoutError:
            ledger.lost(kind, cause)
        except OSError as error:
            failure = CallError("connection", str(error))
            ledger.failed(kind, "server", time.monotonic(), failure)
        except CallError as error:
            status = error.status if error.status in allowed else ""
            if error.status in ("ClientOSError", "ServerDisconnectedError"):
                status = "closed"
            if status:
                ledger.expected(kind, cause, status)
            else:
                ledger.failed(kind, "server", time.monotonic(), error)
        else:
            ledger.wrong(kind, f"{cause} is accepted")

    async def _post(self, path: str, body: bytes) -> None:
        await self.traffic.http.post(path, body)

    async def _wrong_lengths(self) -> None:
        headers = {"Inference-Header-Content-Length": "999999"}
        await self.traffic.http.post("/v2/models/plain/infer", b"{}", headers)

    async def _huge_length(self) -> None:
        await self._raw(self.http_port, _post("/v2/models/plain/infer", 10_000_000_000))

    async def _huge_head(self) -> None:
        await self._raw(self.http_port, b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n")

    async def _raw(self, port: int, data: bytes) -> None:
        """The status of the reply to these bytes; raised as an error unless it is 200."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            with suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
            line = b""
            with suppress(ConnectionError):
                line = await asyncio.wait_for(reader.readline(), 60)
        finally:
            writer.transport.abort()
        status = line.split()[1].decode() if line.startswith(b"HTTP/1") else "closed"
        if status != "200":
            raise CallError(status)

    async def _infer(self, model: str, shape: tuple[int, ...]) -> None:
        request = message(model, {"IN": np.zeros(shape, np.float32)})
        await self.traffic.grpc.call("ModelInfer", request)

    async def _wrong_size(self) -> None:
        request = message("plain", {"IN": np.zeros(4, np.float32)})
        request.raw_input_contents[0] = b"short"
        await self.traffic.grpc.call("ModelInfer", request)


class _Relay:
    """A port in front of the server whose connections can be reset."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._server: asyncio.Server
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @classmethod
    async def open(cls, to: int) -> _Relay:
        relay = cls(to)
        relay._server = await asyncio.start_server(relay._connected, "127.0.0.1", 0)
        relay.port = relay._server.sockets[0].getsockname()[1]
        return relay

    def reset(self) -> None:
        """Reset all connections, on both sides."""
        for writer in self._writers:
            _reset(writer)

    async def close(self) -> None:
        self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        further, behind = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, behind]
        for source, sink in ((reader, behind), (further, writer)):
            task = asyncio.ensure_future(_copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):  # the other side has been reset meanwhile
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, as the kernel does for a client whose machine is gone."""
    if (connected := writer.get_extra_info("socket")) is not None:  # else the peer was faster
        with suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


def _post(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: {length}\r\n\r\n".encode()

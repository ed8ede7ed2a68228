"""Calls while certificates, authorities, keys, tokens' keys and the policy change all the time.

    python -m loadtest.scenarios.access_changes --calls 100000

A server with mutual TLS and an access policy is called over gRPC and HTTP by key, by token and by
certificate, on connections that are made anew again and again. Meanwhile all of its files are
replaced, as an operator would do it: what is new is handed out when the server has taken it up, and
what is old is taken away with the next change. None of the calls may fail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from loadtest.authority import Authority, client_context, write_pair, write_whole
from loadtest.process import Server, penstock
from loadtest.scenarios.unary import write_message, write_repository

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_READY = "/v2/models/identity"
_ON_ONE_CONNECTION = 50
_DRAIN_SECONDS = 0.5
"""For calls that have begun with what goes with the next change."""
_WORKERS = 2
"""For each protocol and each way to be known."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What clients are known by at a time."""

    number: int
    key: str
    token: str
    pair: tuple[bytes, bytes]


Headers = Callable[[Credentials], dict[str, str]]
"""What a client sends to be known."""


_WAYS: tuple[Headers, ...] = (
    lambda given: {"authorization": f"Bearer {given.key}"},
    lambda given: {"authorization": f"Bearer {given.token}"},
    lambda _: {},
)
"""By key, by token, and by certificate."""


class Files:
    """The files of a server, of which each change has the successor of what is in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Authority("server")
        self._authorities = [Authority(f"clients {number}") for number in range(8)]
        self._signers = [ec.generate_private_key(ec.SECP256R1()) for _ in range(8)]
        self.write(0)

    def write(self, number: int) -> None:
        """Replace all of them: by those in which the credentials of this number and the next count.

        Authorities of some numbers before count, too, so that open handshakes find theirs.
        """
        folder = self.folder
        write_pair(folder, "server", self.server.signed(dns=["localhost"]))
        known = [self._authorities[each % 8] for each in range(number - 2, number + 2)]
        write_whole(folder / "clients.pem", b"".join(one.pem for one in known))
        write_whole(folder / "keys.json", json.dumps({"keys": [*self._public(number)]}).encode())
        write_whole(folder / "policy.toml", self._policy(number).encode())

    def credentials(self, number: int) -> Credentials:
        signer, now = self._signers[number % 8], time.time()
        claims = {"sub": "carol", "iss": "issuer", "aud": "penstock", "exp": now + 3600}
        token = jwt.encode(claims, signer, "ES256", {"kid": f"{number}"})
        pair = self._authorities[number % 8].signed(uris=["spiffe://test/bob"])
        return Credentials(number, _key(number), token, pair)

    def _public(self, number: int) -> Iterator[dict[str, Any]]:
        for each in (number, number + 1):
            public = self._signers[each % 8].public_key()
            yield {**ECAlgorithm.to_jwk(public, as_dict=True), "kid": f"{each}"}

    def _policy(self, number: int) -> str:
        hashes = [sha256(_key(each).encode()).hexdigest() for each in (number, number + 1)]
        return f"""
            [callers.alice]
            keys = ["sha256:{hashes[0]}", "sha256:{hashes[1]}"]
            [callers.bob]
            certificates = ["spiffe://test/bob"]
            [callers.visitor-{number}]
            [tokens]
            key_set = "{self.folder / "keys.json"}"
            algorithms = ["ES256"]
            issuer = "issuer"
            audience = "penstock"
            [[rules]]
            callers = ["alice", "bob", "carol", "visitor-{number}"]
            calls = ["inference", "metadata"]
            models = ["identity", "of-{number}"]
            [[rules]]
            callers = ["anyone"]
            calls = ["health", "metrics"]
        """


def _key(number: int) -> str:
    return f"key-{number}"


def flags(folder: Path) -> list[str]:
    """The options of a server with these files."""
    both = [
        f"--{name}-{option}"
        for name in ("grpc", "http")
        for option in (
            "use-ssl-mutual=true",
            f"server-cert={folder / 'server.pem'}",
            f"server-key={folder / 'server.key'}",
            f"root-cert={folder / 'clients.pem'}",
        )
    ]
    return [*both, f"--access-policy={folder / 'policy.toml'}"]


@dataclass(slots=True)
class Report:
    """What came of the calls: their number, and how many failed, by the reason."""

    calls: int = 0
    connections: int = 0
    changes: int = 0
    seconds: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)


class Run:
    """One run: clients, and whoever changes the files."""

    def __init__(
        self, server: Server, files: Files, message: bytes, calls: int, changes: int
    ) -> None:
        self.report = Report()
        self._server = server
        self._files = files
        self._message = message
        self._least = calls
        self._least_changes = changes
        self._given = files.credentials(1)

    async def measured(self) -> Report:
        began = time.monotonic()
        # The operator comes to an end by itself: what is cancelled while it makes a connection
        # would leave the socket to the garbage collector.
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._change())
            for client in (self._over_grpc, self._over_http):
                for headers in _WAYS:
                    for _ in range(_WORKERS):
                        parts.create_task(client(headers))
        self.report.seconds = time.monotonic() - began
        return self.report

    # -- the operator -------------------------------------------------------------------------

    async def _change(self) -> None:
        number = 0
        while not self._done:
            number += 1
            self._files.write(number)
            given = self._files.credentials(number + 1)
            await self._until_taken_up(given)
            self._given = given
            self.report.changes += 1
            await asyncio.sleep(_DRAIN_SECONDS)

    async def _until_taken_up(self, given: Credentials) -> None:
        """Wait until what is new counts, on both ports and by each way to be known."""
        for way in _WAYS:
            for asks in (self._asks_http, self._asks_grpc):
                while not await asks(given, way):  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.05)

    async def _asks_http(self, given: Credentials, way: Headers) -> bool:
        try:
            async with self._http(given) as client:
                return (await client.get(_READY, headers=way(given))).status_code == 200
        except httpx.TransportError:
            return False

    async def _asks_grpc(self, given: Credentials, way: Headers) -> bool:
        async with self._channel(given) as channel:
            method = channel.unary_unary(_METHOD, bytes, bytes)
            try:
                await method(self._message, metadata=[*way(given).items()])
            except grpc.aio.AioRpcError:
                return False
            return True

    # -- clients ------------------------------------------------------------------------------

    @property
    def _done(self) -> bool:
        report = self.report
        return report.calls >= self._least and report.changes >= self._least_changes

    def _http(self, given: Credentials) -> httpx.AsyncClient:
        context = client_context(self._files.server.pem, given.pair, "http/1.1")
        url = f"https://localhost:{self._server.http_port}"
        return httpx.AsyncClient(verify=context, base_url=url, timeout=60)

    def _channel(self, given: Credentials) -> grpc.aio.Channel:
        pem, key = given.pair
        shown = grpc.ssl_channel_credentials(self._files.server.pem, key, pem)
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.secure_channel(f"localhost:{self._server.grpc_port}", shown, options)

    async def _over_http(self, headers: Headers) -> None:
        while not self._done:
            self.report.connections += 1
            async with self._http(self._given) as client:
                for _ in range(_ON_ONE_CONNECTION):
                    await self._counted(partial(self._ask, client, headers))

    async def _over_grpc(self, headers: Headers) -> None:
        while not self._done:
            self.report.connections += 1
            async with self._channel(self._given) as channel:
                method = channel.unary_unary(_METHOD, bytes, bytes)
                for _ in range(_ON_ONE_CONNECTION):
                    await self._counted(partial(self._infer, method, headers))

    async def _ask(self, client: httpx.AsyncClient, headers: Headers) -> str:
        answer = await client.get(_READY, headers=headers(self._given))
        return "" if answer.status_code == 200 else f"HTTP {answer.status_code}"

    async def _infer(self, method: Any, headers: Headers) -> str:
        await method(self._message, metadata=[*headers(self._given).items()])
        return ""

    async def _counted(self, call: Callable[[], Awaitable[str]]) -> None:
        if self._done:
            return
        self.report.calls += 1
        try:
            problem = await call()
        except grpc.aio.AioRpcError as error:
            problem = f"{error.code().name}: {error.details()}"
        except httpx.HTTPError as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self.report.failed[problem] += 1


def measure(calls: int, changes: int = 0) -> Report:
    """Make at least so many calls of a server of its own, and so many changes meanwhile."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_repository(folder / "models")
        message = Path(write_message(folder, "identity", 16)).read_bytes()
        (folder / "access").mkdir()
        files = Files(folder / "access")
        pair = files.credentials(0).pair
        trusted = client_context(files.server.pem, pair, "http/1.1")
        trusted.check_hostname = False  # it is asked by its number
        with penstock(folder / "models", *flags(files.folder), tls=trusted) as server:
            return asyncio.run(Run(server, files, message, calls, changes).measured())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    report = measure(parser.parse_args().calls)
    print(
        f"{report.calls} calls on {report.connections} connections in {report.seconds:.0f} s,"
        f" {report.changes} changes of all files: {report.failed.total()} failed"
    )
    for problem, count in report.failed.most_common():
        print(f"  {count} x {problem}")
    raise SystemExit(bool(report.failed))


if __name__ == "__main__":
    main()

"""A whole Penstock as a process of a Ray actor: its start, what it tells, changes, its exit.

Nothing here knows Ray: whoever holds a `ServerProcess` may be an actor, or a test.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import grpc
import grpc.aio
from prometheus_client.parser import text_string_to_metric_families

from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from penstock.protocol.releases_pb2_grpc import ReleasesStub
from penstock.ray.changes import Change, NotAppliedError
from penstock.ray.replica_set import Address
from penstock.ray.scaling import Counted, LoadMeter, ReplicaLoad, counted

CHOSEN = ("grpc", "http", "metrics")
"""What listens; a replica chooses addresses and ports, whose flags are refused by name."""

NODE = "RAY_NODE_ID"
"""Environment variable of the server, and of its models: the node that it is on."""

_REFUSED = (
    *(f"--{name}-{what}" for name in CHOSEN for what in ("port", "address")),
    *(f"--allow-{name}" for name in CHOSEN),
    "--grpc-use-ssl",
    "--grpc-use-ssl-mutual",
)
# The process that asks for it is a child of this one by now, and runs no thread yet.
_LAUNCH = """
import sys
from penstock.system.process_control import die_with_parent
die_with_parent()
from penstock.cli import main
sys.exit(main())
"""
_POLL_SECONDS = 0.1
_LAST_LINES = 40
_CALL_SECONDS = 10.0
_LOAD_SECONDS = 3600.0
_DENIED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)
"""Of channels to a replica: messages of any size, and no proxy of the environment's."""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StartError(Exception):
    """A server did not start; `node` is where, and the text what it printed last."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(reason)
        self.node = node

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.node, str(self)))


class GoneError(Exception):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a replica tells: what it bears, and the models that it has loaded."""

    load: ReplicaLoad
    models: tuple[str, ...]


def refused(arguments: Sequence[str]) -> str:
    """What is wrong with arguments of `penstock serve` for a replica; empty if nothing is."""
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag in _REFUSED:
            return (
                f"{flag} cannot be given: replicas listen without TLS, on the address of their "
                "node and on ports that are free there"
            )
    return ""


class ServerProcess:
    """`penstock serve` with these arguments, listening on `host`.

    `node` is for messages, `python` runs it (this one), `metadata` goes with each call that is made
    to it, such as a key. Killed with the thread that starts it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        host: str = "127.0.0.1",
        node: str = "",
        python: str = "",
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        if reason := refused(arguments):
            raise ValueError(reason)
        self._arguments = arguments
        self._python = python or sys.executable
        self._metadata = tuple(metadata)
        self._host = host
        self._node = node
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._meter = LoadMeter()
        self._tasks: list[asyncio.Task[Any]] = []
        self._process: asyncio.subprocess.Process | None = None
        self.address = Address(node, host, 0, 0, 0)

    async def start(self) -> Address:
        """Return where it listens when it is ready. Raises `StartError`."""
        ports = _free_ports(self._host, len(CHOSEN))
        self.address = Address(self._node, self._host, *ports)
        flags = [f"--{name}-port={port}" for name, port in zip(CHOSEN, ports, strict=True)]
        flags += [f"--{name}-address={self._host}" for name in CHOSEN]
        self._process = await asyncio.create_subprocess_exec(
            *(self._python, "-c", _LAUNCH, "serve", *flags, *self._arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, NODE: self._node},
        )
        self._tasks.append(asyncio.create_task(self._relay(self._process)))
        target = f"{self._host}:{ports[0]}"
        self._channel = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._inference = GRPCInferenceServiceStub(self._channel)
        self._releases = ReleasesStub(self._channel)
        try:
            while not await self._is_ready():
                if self._process.returncode is not None:
                    await asyncio.gather(*self._tasks)
                    raise StartError(self._node, self._reason())
                await asyncio.sleep(_POLL_SECONDS)
        except StartError:
            await self.stop(_CALL_SECONDS)
            raise
        return self.address

    async def _relay(self, process: asyncio.subprocess.Process) -> None:
        """Print what it prints, which Ray keeps in a log; the last lines are kept here."""
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than the buffer, and dropped as far as it was there
                continue
            if not line:
                break
            text = line.decode(errors="replace").rstrip("\n")
            self._lines.append(text)
            print(text, flush=True)
        await process.wait()

    def _reason(self) -> str:
        """The lines from the last error on, or the last ones at all."""
        lines = list(self._lines)
        begins = [n for n, line in enumerate(lines) if line.startswith(("error:", "penstock"))]
        return "\n".join(lines[begins[-1] :] if begins else lines[-5:])

    async def is_ready(self) -> bool:
        """Whether it says that it is ready. Raises `GoneError` once the process has ended."""
        self._check()
        return await self._is_ready()

    async def _is_ready(self) -> bool:
        """Raises `StartError` where the server does not tell it to us."""
        try:
            answer = await self._inference.ServerReady(
                pb.ServerReadyRequest(), timeout=_CALL_SECONDS, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            if error.code() in _DENIED:
                reason = f"the server does not say whether it is ready: {error.details()}"
                raise StartError(self._node, reason) from error
            return False
        return bool(answer.ready)

    async def report(self) -> Report:
        """What it tells now. Raises `GoneError` once the process has ended."""
        self._check()
        index, page = await asyncio.gather(
            self._inference.RepositoryIndex(
                pb.RepositoryIndexRequest(ready=True),
                timeout=_CALL_SECONDS,
                metadata=self._metadata,
            ),
            asyncio.to_thread(self._metrics_page),
        )
        models = tuple(sorted({model.name for model in index.models}))
        return Report(self._meter.load(metrics_of_page(monotonic(), page)), models)

    def _check(self) -> None:
        if self._process is None or self._process.returncode is not None:
            raise GoneError(f"the server has ended:\n{self._reason()}")

    def _metrics_page(self) -> str:
        url = f"http://{self._host}:{self.address.metrics}/metrics"
        with _DIRECT.open(url, timeout=_CALL_SECONDS) as answer:
            page: bytes = answer.read()
        return page.decode()

    async def apply(self, change: Change) -> None:
        """Load, unload, or change an alias. Raises `NotAppliedError` with the server's reason."""
        self._check()
        calls: Mapping[str, Any] = {
            "load": self._inference.RepositoryModelLoad,
            "unload": self._inference.RepositoryModelUnload,
            "alias": self._releases.AliasSet,
            "remove_alias": self._releases.AliasRemove,
        }
        try:
            await calls[change.kind](change.request, timeout=_LOAD_SECONDS, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            raise NotAppliedError(error.details() or code, code) from error

    async def stop(self, seconds: float) -> None:
        """SIGTERM, upon which it answers what is in flight; after so many seconds SIGKILL."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await process.wait()
                    break
        await asyncio.gather(*self._tasks)
        await self._channel.close(None)


def metrics_of_page(at: float, page: str) -> Counted:
    """What a metrics page says of all models together; `at` is when, in seconds."""
    sums: dict[str, float] = {}
    blocks: dict[tuple[str, str], float] = {}
    usage: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            model = (sample.labels.get("model", ""), sample.labels.get("version", ""))
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
            if sample.name == "penstock_llm_cache_config_info":
                sizes = (sample.labels.get(name, "") for name in ("block_size", "num_gpu_blocks"))
                blocks[model] = _product(*sizes)
            elif sample.name == "penstock_llm_kv_cache_usage":
                usage[model] = sample.value
    tokens = sum(size * usage.get(model, 0.0) for model, size in blocks.items())
    return counted(at, sums, tokens)


def _product(*numbers: str) -> float:
    """The product of numbers as text; 0 where one is not told."""
    product = 1.0
    for number in numbers:
        product *= float(number) if number.isdigit() else 0.0
    return product


def _free_ports(host: str, number: int) -> list[int]:
    """Ports that are free on this address now."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()

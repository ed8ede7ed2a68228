"""What a machine does to a server: processes die or stand still, disks and memory are full,
descriptors run out, clocks jump, networks go silent, services behind it die.

A fault begins, lasts, and ends; `models` are those whose calls may fail of it meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from loadtest.process import free_ports
from loadtest.soak.answers import FORMULAS
from loadtest.soak.ledger import CallError
from loadtest.soak.models import SoakModels
from loadtest.soak.server import Server
from loadtest.soak.traffic import Traffic
from loadtest.soak.watch import below
from loadtest.soak.wire import message
from penstock.protocol import grpc_service_pb2 as pb

OPEN_POLICY = '[[rules]]\ncallers = ["anyone"]\ncalls = ["*"]\n'
"""An access policy that asks, and permits everybody everything."""

EVERY = "every"
"""Stands for all models."""

_CLOCK = """
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
__attribute__((constructor)) static void begin(void) {
    offset = mmap(0, 8, PROT_READ, MAP_SHARED, open("PATH", O_RDONLY), 0);
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME && offset) now->tv_sec += *offset;
    return status;
}
"""
"""A library that moves the clock of the day of the process that it is loaded into."""
_TRACES = ("--trace-config=rate=20", "--trace-config=level=TIMESTAMPS")


@dataclass(slots=True)
class Site:
    """A server under a fault: its process, models and clients, and a folder for what is needed."""

    server: Server
    models: SoakModels
    traffic: Traffic

    @property
    def pid(self) -> int:
        return self.server.process.pid

    async def counted(self, *names: str) -> str:
        """Sums of metrics, as text."""
        page = await self.traffic.http.metrics()
        rows = [line.rsplit(" ", 1) for line in page.splitlines() if line[:1] not in "#"]
        sums = {
            name: sum(float(value) for key, value in rows if key.partition("{")[0] == name)
            for name in names
        }
        return ", ".join(f"{name.split('_', 1)[1]} {value:g}" for name, value in sums.items())


class Fault(ABC):
    """One kind of fault; `seconds` is how long it lasts, `folder` is its own."""

    name = ""
    models: Sequence[str] = ()
    seconds = 3.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def missing(self) -> str:
        """What it lacks on this machine; empty if it can be made."""
        return ""

    def options(self) -> list[str]:
        """What the server is started with for it."""
        return []

    def environment(self) -> Mapping[str, str]:
        """What is added to the server's environment for it."""
        return {}

    @abstractmethod
    async def begin(self, site: Site) -> None:
        """Make it."""

    async def end(self, site: Site) -> None:
        """Make it undone."""

    async def seen(self, site: Site) -> str:
        """What else is to be told of it."""
        return ""

    def close(self) -> None:
        """Undo what outlives the server."""


class ModelKilled(Fault):
    """`kill -9` of all processes of a model."""

    name, models, seconds = "kill -9 of a model's processes", ("plain", "chain", "asker"), 0.0

    async def begin(self, site: Site) -> None:
        for pid in site.models.processes("plain"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            site.models.forget("plain", pid)


class SpareKilled(Fault):
    """`kill -9` of the processes that wait for a model to be loaded."""

    name, seconds = "kill -9 of spare processes", 0.0

    async def begin(self, site: Site) -> None:
        model_names = {"plain", "victim", "frozen", "coming", "cached", "batched", "sums", "shout"}
        model_names |= {"count", "spell", "caller", "asker", "changing", "coro", "drip"}
        serving = {pid for name in model_names for pid in site.models.processes(name)}
        self._killed = [pid for pid in below(site.pid) if pid not in serving]
        for pid in self._killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def seen(self, site: Site) -> str:
        return f"{len(self._killed)} killed"


class ModelStopped(Fault):
    """SIGSTOP for a model's processes: calls are late, and none may fail."""

    name = "SIGSTOP of a model's processes"

    async def begin(self, site: Site) -> None:
        self._send(site, signal.SIGSTOP)

    async def end(self, site: Site) -> None:
        self._send(site, signal.SIGCONT)

    def _send(self, site: Site, what: signal.Signals) -> None:
        for pid in site.models.processes("plain"):
            os.kill(pid, what)


class ServerStopped(Fault):
    """SIGSTOP for the server: calls are late, and none may fail."""

    name = "SIGSTOP of the server"

    async def begin(self, site: Site) -> None:
        os.kill(site.pid, signal.SIGSTOP)

    async def end(self, site: Site) -> None:
        os.kill(site.pid, signal.SIGCONT)


class DiskFull(Fault):
    """No room for logs, traces and the audit log, on a disk of their own."""

    name, seconds = "full disk under logs and traces", 5.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._disk = folder / "disk"
        self._filler = self._disk / "filler"
        self._disk.mkdir()

    def missing(self) -> str:
        done = _run("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(self._disk))
        return "" if done == 0 else "mounting a disk"

    def options(self) -> list[str]:
        return [
            f"--log-file={self._disk}/log",
            f"--audit-log={self._disk}/audit",
            f"--trace-config=triton,file={self._disk}/trace.json",  # if nothing says otherwise
            *_TRACES,
        ]

    async def begin(self, site: Site) -> None:
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        await self._control(site)

    async def end(self, site: Site) -> None:
        self._filler.unlink()
        await self._control(site)

    async def seen(self, site: Site) -> str:
        audit = (self._disk / "audit").read_text().splitlines()
        return f"{await site.counted('penstock_audit_lines_lost_total')}, {len(audit)} lines kept"

    async def _control(self, site: Site) -> None:
        """Calls of which the audit log and the log have a line each, some long."""
        for _ in range(100):
            request = pb.RepositoryModelUnloadRequest(model_name="none" * 100)
            with suppress(CallError):
                await site.traffic.grpc.call("RepositoryModelUnload", request)

    def close(self) -> None:
        _run("umount", "-l", str(self._disk))


class NoMemory(Fault):
    """A model wants more memory than its control group has: the kernel kills its process."""

    name, models, seconds = "a model without memory (cgroup)", ("hungry",), 2.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        first = Path("/sys/fs/cgroup/memory")
        self._group = (first if first.is_dir() else first.parent) / f"chaos-{os.getpid()}"
        self._limit = "memory.limit_in_bytes" if first.is_dir() else "memory.max"

    def missing(self) -> str:
        try:
            self._group.mkdir()
            (self._group / self._limit).write_text(str(300 << 20))
        except OSError as error:
            return f"control groups of memory ({error})"
        return ""

    async def begin(self, site: Site) -> None:
        (pid,) = site.models.processes("hungry")
        (self._group / "cgroup.procs").write_text(str(pid))
        site.models.forget("hungry", pid)
        self._said = "was not killed"
        request = message("hungry", {"IN": np.array([900], np.float32)})
        try:
            await site.traffic.grpc.call("ModelInfer", request)
        except CallError as error:
            self._said = f"{error.status}: {error.text[:90]}"

    async def seen(self, site: Site) -> str:
        return self._said

    def close(self) -> None:
        with suppress(OSError):
            self._group.rmdir()


class NoDescriptors(Fault):
    """The server may open nothing more; what is open goes on."""

    name, models, seconds = "no descriptors", (EVERY,), 5.0

    async def begin(self, site: Site) -> None:
        self._limits = resource.prlimit(site.pid, resource.RLIMIT_NOFILE)
        used = max(int(name) for name in os.listdir(f"/proc/{site.pid}/fd")) + 1
        resource.prlimit(site.pid, resource.RLIMIT_NOFILE, (used, self._limits[1]))
        connecting = [asyncio.create_task(_asking(site.server.http_port)) for _ in range(50)]
        self._open, late = await asyncio.wait(connecting, timeout=self.seconds / 2)
        for one in late:
            one.cancel()

    async def end(self, site: Site) -> None:
        resource.prlimit(site.pid, resource.RLIMIT_NOFILE, self._limits)
        for one in self._open:
            if one.exception() is None:
                one.result().close()


class ClockJumps(Fault):
    """The clock of the day goes ten minutes forward, then twenty back."""

    name, seconds = "clock jumps by 10 minutes", 6.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._offset = folder / "offset"
        self._library = folder / "clock.so"
        self._jump(0)

    def missing(self) -> str:
        source = self.folder / "clock.c"
        source.write_text(_CLOCK.replace("PATH", str(self._offset)))
        command = ("cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(self._library))
        return "C compiler" if shutil.which("cc") is None or _run(*command) else ""

    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library)}

    async def begin(self, site: Site) -> None:
        self._jump(600)
        await asyncio.sleep(self.seconds / 2)
        self._jump(-600)

    async def end(self, site: Site) -> None:
        self._jump(0)

    def _jump(self, seconds: int) -> None:
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))


class SilentClients(Fault):
    """Clients in another network, whose cable is cut while streams and calls are open."""

    name, seconds = "half-open connections", 75.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._network = f"chaos{os.getpid()}"
        self._clients: list[subprocess.Popen[bytes]] = []

    def missing(self) -> str:
        if shutil.which("ip") is None:
            return "the command ip"
        commands = (
            f"netns add {self._network}",
            f"link add {self._network}a type veth peer name {self._network}b",
            f"link set {self._network}b netns {self._network}",
            f"addr add 10.231.7.1/30 dev {self._network}a",
            f"link set {self._network}a up",
            f"-n {self._network} addr add 10.231.7.2/30 dev {self._network}b",
            f"-n {self._network} link set {self._network}b up",
        )
        failed = [each for each in commands if _run("ip", *each.split())]
        return f"network namespaces ({failed[0]})" if failed else ""

    def options(self) -> list[str]:
        return ["--grpc-keepalive-time=1000", "--grpc-keepalive-timeout=1000"]

    async def begin(self, site: Site) -> None:
        command = [sys.executable, "-m", "loadtest.soak.faults"]
        ports = [str(site.server.grpc_port), str(site.server.http_port)]
        inside = ["ip", "netns", "exec", self._network]
        await asyncio.to_thread(self._start, [*inside, *command, "10.231.7.1", *ports])
        self._opened = _from_afar()
        _run("ip", "link", "set", f"{self._network}a", "down")
        cut = time.monotonic()
        left = await asyncio.to_thread(self._left, cut + self.seconds)
        self._said = f"{left or 'none'} there {time.monotonic() - cut:.1f} s after the cut"

    def _left(self, end: float) -> int:
        """Connections that are there at this time, or 0 as soon as there are none."""
        while (left := _from_afar()) and time.monotonic() < end:
            time.sleep(0.2)
        return left

    def _start(self, command: Sequence[str]) -> None:
        client = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._clients.append(client)
        assert client.stdout is not None
        client.stdout.readline()  # it is connected

    async def seen(self, site: Site) -> str:
        return f"{self._opened} connections, {self._said}"

    def close(self) -> None:
        for client in self._clients:
            client.kill()
            client.communicate()
        _run("ip", "netns", "del", self._network)


class CollectorDies(Fault):
    """The collector of traces is killed, and comes back."""

    name, seconds = "the collector dies", 5.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._port,) = free_ports(1)
        self._start()

    def options(self) -> list[str]:
        url = f"http://127.0.0.1:{self._port}/v1/traces"
        return [
            f"--trace-config=opentelemetry,url={url}",
            "--trace-config=mode=opentelemetry",
            *_TRACES,
        ]

    async def begin(self, site: Site) -> None:
        self._process.kill()
        self._process.wait()

    async def end(self, site: Site) -> None:
        self._start()

    async def seen(self, site: Site) -> str:
        return await site.counted(
            "penstock_trace_spans_exported_total", "penstock_trace_spans_dropped_total"
        )

    def _start(self) -> None:
        command = [sys.executable, "-m", "loadtest.null_collector", str(self._port)]
        self._process = subprocess.Popen(command)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class RedisDies(Fault):
    """The cache of responses is killed, and comes back empty."""

    name, seconds = "Redis dies", 5.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def missing(self) -> str:
        if shutil.which("redis-server") is None:
            return "redis-server"
        self._start()
        return ""

    def options(self) -> list[str]:
        return ["--cache-config=redis,host=127.0.0.1", f"--cache-config=redis,port={self._port}"]

    async def begin(self, site: Site) -> None:
        self.close()

    async def end(self, site: Site) -> None:
        self._start()

    async def seen(self, site: Site) -> str:
        return await site.counted("nv_cache_num_hits_per_model", "nv_cache_num_misses_per_model")

    def _start(self) -> None:
        command = ["redis-server", "--port", str(self._port), "--save", "", "--bind", "127.0.0.1"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()


class RedisHangs(RedisDies):
    """The cache of responses takes connections and requests, and answers nothing."""

    name = "Redis hangs"

    async def begin(self, site: Site) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    async def end(self, site: Site) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


async def suffer(fault: Fault, site: Site) -> float:
    """A fault from its beginning to its end; the seconds after it until models answer right."""
    ledger = site.traffic.ledger
    names = _ALL if EVERY in fault.models else fault.models
    trouble = ledger.trouble(fault.name, names) if names else None
    if trouble is None:
        ledger.begins(fault.name)
    begun = time.monotonic()
    await fault.begin(site)
    await asyncio.sleep(max(0.0, begun + fault.seconds - time.monotonic()))
    await fault.end(site)
    ended, left = time.monotonic(), [*FORMULAS]
    while left and time.monotonic() < ended + 60:
        if await site.traffic.checked("probe after trouble", left[-1], site.traffic.ask(left[-1])):
            left.pop()
        else:
            await asyncio.sleep(0.05)
    if left:
        ledger.lost("probe after trouble", f"{left} did not come back from {fault.name}")
    if trouble is not None:
        ledger.recovered("all", trouble, counts=False)
    seconds = time.monotonic() - ended
    ledger.recoveries[f"all, {fault.name}"].append(seconds)
    return seconds


_ALL = (*FORMULAS, "changing", "count", "spell", "shout", "sums", "repeat", "drip", "server")

IN_A_SOAK: Sequence[type[Fault]] = (
    SpareKilled,
    ServerStopped,
    DiskFull,
    NoDescriptors,
    CollectorDies,
    RedisDies,
)
"""Those that one server can have, one after another; a soak kills and stops models by itself."""

FAULTS: Sequence[type[Fault]] = (
    ModelKilled,
    SpareKilled,
    ModelStopped,
    ServerStopped,
    DiskFull,
    NoMemory,
    NoDescriptors,
    ClockJumps,
    SilentClients,
    CollectorDies,
    RedisDies,
    RedisHangs,
)


_ESTABLISHED = "01"
_AFAR = "0207E70A"
"""10.231.7.2, as the kernel writes it."""


def _run(*command: str) -> int:
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode


async def _asking(port: int) -> socket.socket:
    """A connection that asks for something, accepted or not."""
    one, loop = socket.socket(), asyncio.get_running_loop()
    with ExitStack() as failed:
        failed.callback(one.close)
        one.setblocking(False)
        await loop.sock_connect(one, ("127.0.0.1", port))
        await loop.sock_sendall(one, b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        failed.pop_all()
    return one


def _from_afar() -> int:
    """Connections from the other network that the server has not closed."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].startswith(_AFAR) and row[3] == _ESTABLISHED for row in rows)


_ENDLESS = (
    b"POST /v2/models/drip/generate_stream HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"
    b'{"IN": 1}'
)


async def _stay(host: str, grpc_port: str, http_port: str) -> None:
    """Open streams of all kinds and read them, until killed."""
    kept: list[object] = []
    for _ in range(10):
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(f"{host}:{grpc_port}", options=options)
        method = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        call = method(None)
        await call.write(message("drip", {"IN": np.array([1], np.int32)}))
        kept.append(call)
    for number in range(10):
        reader, writer = await asyncio.open_connection(host, int(http_port))
        writer.write(_ENDLESS if number % 2 else _ENDLESS[:-4])
        kept.append((reader, writer))
    await asyncio.sleep(2)
    print("connected", flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(_stay(*sys.argv[1:4]))

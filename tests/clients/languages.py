"""The client examples in `clients/`: what each needs, how it is built, run and judged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.serving import Served, serving, wait_until
from rpc.certificates import write_certificates

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "clients"
STAND_INS = CLIENTS / "models"
FEATURES = ("unary", "metadata", "stream", "cancel", "deadline", "retry")

_BUILD_TIMEOUT = 1800.0  # seconds: Rust and Java fetch and compile much the first time
_RUN_TIMEOUT = 120.0
_FETCH_TIMEOUT = 100.0
# The generations that a client leaves: one by itself, one at its deadline.
_LEFT = 2


class ExampleError(Exception):
    """An example failed; the message has what it printed."""


@dataclass(frozen=True, slots=True)
class Example:
    """The example of one language: a folder with `build.sh` and what runs it."""

    language: str
    folder: str
    programs: tuple[str, ...] = ()
    run: str = "run.sh"
    libraries: tuple[str, ...] = ()
    """What pkg-config must know."""
    install: str = ""
    """What installs its tools."""
    optional: bool = False
    """Whether a machine may lack them, other than one of continuous integration."""
    fetch: str = ""
    """What fetches its packages, in its folder; what has been fetched is not fetched again."""
    unguarded: str = ""
    """Why `make test` leaves it to `make test-clients`."""

    def missing(self) -> str:
        """What is not installed here; empty if all is."""
        for program in self.programs:
            if shutil.which(program) is None:
                return program
        for library in self.libraries:
            known = subprocess.run(["pkg-config", "--exists", library], check=False)
            if known.returncode != 0:
                return f"the library {library}"
        return ""

    def unreachable(self) -> str:
        """Why its packages cannot be fetched; empty if they are here."""
        command = f"../protoc --version && {self.fetch or 'true'}"
        try:
            _run("sh", "-c", command, timeout=_FETCH_TIMEOUT, folder=CLIENTS / self.folder)
        except ExampleError as error:
            return str(error).strip().splitlines()[-1]
        return ""

    def build(self) -> None:
        """Generate the stubs and compile."""
        _run(str(CLIENTS / self.folder / "build.sh"), timeout=_BUILD_TIMEOUT)

    def ask(self, server: Server) -> list[str]:
        """The features that worked against a server, which has to notice that it was left."""
        before = server.cancelled()
        printed = self.start(*server.arguments)
        server.wait_for_cancelled(before + _LEFT)
        return [line.removeprefix("ok ") for line in printed.splitlines() if line.startswith("ok ")]

    def start(self, *arguments: str) -> str:
        """What it prints; raises `ExampleError` with that if its exit status is not 0."""
        program = str(CLIENTS / self.folder / self.run)
        return _run(program, *arguments, timeout=_RUN_TIMEOUT)


EXAMPLES = (
    Example("Python", "python"),
    Example("Python, asyncio", "python", run="run-asyncio.sh"),
    Example(
        "TypeScript",
        "typescript",
        ("node", "npm"),
        install="Node 20 or newer, with npm",
        fetch="./packages.sh",
    ),
    Example("Go", "go", ("go",), install="Go 1.26 or newer", fetch="go mod download"),
    Example(
        "Rust",
        "rust",
        ("cargo", "cc"),
        install="Rust, seen with 1.95, by rustup, and apt-get install gcc",
        unguarded="it compiles for minutes the first time",
    ),
    Example(
        "Java",
        "java",
        ("java", "javac", "mvn"),
        install="apt-get install openjdk-17-jdk-headless maven",
        unguarded="Maven fetches a hundred packages the first time",
    ),
    Example(
        "C++",
        "cpp",
        ("cmake", "c++", "pkg-config", "protoc", "grpc_cpp_plugin"),
        libraries=("grpc++", "protobuf"),
        install="apt-get install cmake g++ pkg-config libgrpc++-dev libprotobuf-dev"
        " protobuf-compiler-grpc",
        unguarded="it needs packages of the system",
    ),
    Example(
        "Ruby",
        "ruby",
        ("ruby", "grpc_tools_ruby_protoc"),
        install="apt-get install ruby-grpc ruby-grpc-tools",
        optional=True,
        unguarded="it needs packages of the system",
    ),
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server of the models that the examples ask, with TLS if there is an authority."""

    served: Served
    authority: str = ""

    @property
    def arguments(self) -> list[str]:
        """What an example is started with. Certificates are for a name, so an address is none."""
        address = f"localhost:{self.served.ports['grpc']}"
        return [address, self.authority] if self.authority else [address]

    def cancelled(self) -> int:
        """Generations whose client has left so far."""
        with urllib.request.urlopen(self.served.metrics, timeout=10) as page:
            lines = page.read().decode().splitlines()
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in lines
            if line.startswith('penstock_cancelled_total{model="tiny_llm"')
        )

    def wait_for_cancelled(self, count: int) -> None:
        """Wait until so many generations have been left; the server may notice after the client."""
        try:
            wait_until(lambda: self.cancelled() == count)
        except AssertionError as late:
            raise ExampleError(
                f"{count} generations should have been left by now, not {self.cancelled()}"
            ) from late


@contextmanager
def servers(folder: Path, models: Path = STAND_INS) -> Iterator[tuple[Server, Server]]:
    """Two servers, ready: the second one with TLS. Statistics are for friends only."""
    certificates = write_certificates(folder)
    restricted = "--grpc-restricted-protocol=statistics:clients=friends"
    tls = (
        "--grpc-use-ssl=true",
        f"--grpc-server-cert={certificates / 'server.pem'}",
        f"--grpc-server-key={certificates / 'server.key'}",
    )
    with (
        serving(models, folder / "plain.log", restricted) as plain,
        serving(models, folder / "tls.log", restricted, *tls) as secure,
    ):
        yield Server(plain), Server(secure, str(certificates / "root.pem"))


def _run(*command: str, timeout: float, folder: Path = CLIENTS) -> str:
    """What a program prints."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            # The compiler of protobuf is run by uv, which lies beside this Python.
            env={
                **os.environ,
                "PYTHON": sys.executable,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise ExampleError(f"{command[0]} did not end within {timeout:.0f} s") from late
    if done.returncode != 0:
        raise ExampleError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout

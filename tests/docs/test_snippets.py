"""Programs and lines for clients in README and docs end, whatever the server does."""

from __future__ import annotations

import asyncio
import io
import re
import shlex
import socket
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.serving import LOCAL
from harness.snippets import PAGES, lines, programs
from penstock import cli
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.rpc.server import open_grpc
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from penstock.system.reaper import Reaper

_STATES = ("loading", "dead", "without the model")
_COMMANDS = "(?:infer|generate|embed|models|stats|wait)"

PROGRAMS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(programs(page))
    if "localhost:800" in code or re.search(r"\bclient\.\w+\(", code)
]
SHELL = sorted({line for page in PAGES for line in lines(page, f"penstock {_COMMANDS}")})
CURL = sorted({line for page in PAGES for line in lines(page, "curl")})


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a server listens, or nobody does."""

    grpc: int
    http: int

    def placed(self, text: str) -> str:
        """A snippet that asks this server."""
        text = re.sub(r"\blocalhost:8001\b", f"127.0.0.1:{self.grpc}", text)
        return re.sub(r"\b(?:localhost|host):8000\b", f"127.0.0.1:{self.http}", text)


@pytest.fixture(params=_STATES)
async def ports(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ports]:
    """The ports of a server without a model, which is in one of the states."""
    files, reaper = ModelRepository([tmp_path]), Reaper()
    lifecycle = ModelLifecycle(files, VersionBuilder(lambda _: {}, reaper))
    server = InferenceServer(ServerMetadata("triton", "2.51.0"), files, lifecycle)
    grace = ExitDeadline(2)
    try:
        if request.param == "dead":
            with socket.socket() as grpc, socket.socket() as http:
                yield Ports(_kept(grpc), _kept(http))
            return
        if request.param == "without the model":
            await server.start([])
        settings = GrpcSettings(address="127.0.0.1", port=0)
        async with (
            open_grpc(server, settings, grace) as grpc,
            open_gateway(server, LOCAL, grace) as http,
        ):
            yield Ports(grpc, http)
    finally:
        await server.stop(ExitDeadline(2))
        reaper.close()


def _kept(unused: socket.socket) -> int:
    """A port that nobody listens at, or can take meanwhile."""
    unused.bind(("127.0.0.1", 0))
    return int(unused.getsockname()[1])


async def _ended(work: Callable[[], object]) -> BaseException | object:
    """What work returned, or raised, on a thread of its own, which nobody waits for at the end."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[BaseException | object] = loop.create_future()

    def run() -> None:
        try:
            done: BaseException | object = work()
        except BaseException as error:
            done = error
        loop.call_soon_threadsafe(outcome.set_result, done)

    threading.Thread(target=run, daemon=True).start()
    return await outcome


def _is_threaded(program: Any) -> bool:
    return "tritonclient" in program.values[0]


def _whole(code: str) -> str:
    """The program that a piece of one stands for."""
    if "async with" in code and "asyncio.run" not in code:
        inside = textwrap.indent(code, "    ")
        if "Client(" not in code:
            opened = '    async with Client("localhost:8001", timeout=60) as client:\n'
            inside = opened + textwrap.indent(inside, "    ")
        code = f"async def main():\n{inside}\nasyncio.run(main())"
    return f"{_PREFACE}\n{code}"


_PREFACE = """
import asyncio
from contextlib import aclosing
import numpy
from penstock.client import Client
array, prompt, enough = numpy.zeros((1, 4), numpy.float32), "a", bool
"""
"""What pieces take for granted."""


def test_snippets_are_found() -> None:
    assert {"README-0", "README-1", "client-0", "client-1", "client-2", "openai-0"} <= {
        str(param.id) for param in PROGRAMS
    }
    assert any("penstock generate" in line for line in SHELL)
    assert any("generate_stream" in line for line in CURL)


@pytest.mark.parametrize("code", [one for one in PROGRAMS if _is_threaded(one)])
async def test_a_program_with_threads_ends_with_an_error(code: str, ports: Ports) -> None:
    """In a process, which a thread that goes on would keep from ending."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ports.placed(code), stderr=asyncio.subprocess.PIPE
    )
    try:
        _, errors = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 1
    assert b"InferenceServerException" in errors
    assert b"stream is no longer in valid state" not in errors  # which says nothing of the server


@pytest.mark.parametrize("code", [one for one in PROGRAMS if not _is_threaded(one)])
async def test_a_program_ends_with_an_error(code: str, ports: Ports) -> None:
    placed = ports.placed(_whole(code)).replace('api_key="none"', 'api_key="none", max_retries=0')
    outcome = await _ended(lambda: exec(placed, {"__name__": "__main__"}))
    assert isinstance(outcome, Exception)
    assert not isinstance(outcome, NameError | SyntaxError | ImportError)


async def test_a_server_in_a_program_is_stopped_without_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    (page,) = (page for page in PAGES if page.stem == "in-process")
    names: dict[str, Any] = {}
    outcome = await _ended(lambda: exec(next(programs(page)), names))
    assert isinstance(outcome, names["tritonserver"].NotFoundError)
    with pytest.raises(names["tritonserver"].TritonError):
        names["server"].ready()


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_program_has_a_deadline(code: str) -> None:
    """Of its own, or that of the client which it is given."""
    assert "timeout=" in code or not re.search(r"(?:Client|OpenAI)\(", code)


@pytest.mark.parametrize("line", SHELL)
async def test_a_command_ends(line: str, ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", f"127.0.0.1:{ports.grpc}")
    monkeypatch.setattr("sys.stdin", io.StringIO("a"))
    command = line.partition(" #")[0].partition(" > ")[0]
    patience = ["--timeout=0.2"] if " wait " in line else []
    words = [*shlex.split(ports.placed(command))[1:], *patience]
    assert await _ended(lambda: cli.main(words)) in range(6)


async def test_lines_with_curl_end(ports: Ports) -> None:
    """One after the other: what the server answers is not of interest here."""
    commands = "\n".join(f"{ports.placed(line.partition('  # ')[0])} -s" for line in CURL)
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", commands, stdout=asyncio.subprocess.DEVNULL
    )
    assert await shell.wait() in range(100)

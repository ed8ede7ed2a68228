"""`PythonBackend`: what the server must know of models in Python; they run elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from penstock.core.backend import Backend, Host, InstanceContext, Outcome
from penstock.core.config import ModelConfig, config_from_json, config_to_json
from penstock.core.errors import InternalError, error_from_code
from penstock.core.request import InferenceRequest
from penstock.hosting import bootstrap
from penstock_backends.python import environment
from penstock_backends.python.memory_limit import memory_limit

_SAYS_MORE = ("auto_complete_config", "penstock.model")

_END_SECONDS = 10.0
"""What a process has to end in once it has said all."""


class PythonBackend(Backend):
    """Models with a `model.py`; each instance is a process that `stub` serves."""

    host: ClassVar[Host] = "process"
    process_main: ClassVar[str] = "penstock_backends.python.stub:run"

    @classmethod
    async def interpreter(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> str | None:
        """The Python of the model's own environment, or what the settings say."""
        own = await asyncio.to_thread(environment.interpreter, config, version_path.parent)
        return own or settings.get("python")

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        """Ask the model, in a process of its own, when it has something to say."""
        if not await asyncio.to_thread(_may_complete, version_path):
            return config
        python = await cls.interpreter(config, version_path, settings) or sys.executable
        return await _completed(config, version_path, python)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        memory_limit(config)

    async def initialize(self, context: InstanceContext) -> None:
        raise InternalError("models in Python are served by a process of their own")

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        raise InternalError("models in Python are served by a process of their own")


def _may_complete(version_path: Path) -> bool:
    """Whether any of the model's code mentions the hook; asking costs the start of a process."""
    sources = [*version_path.glob("**/*.py"), *version_path.parent.glob("*.py")]
    return any(word in path.read_text(errors="replace") for path in sources for word in _SAYS_MORE)


async def _completed(config: ModelConfig, version_path: Path, python: str) -> ModelConfig:
    described = config_to_json(config, with_defaults=True)
    header = {"config": described, "version_path": str(version_path)}
    answer, status = await _ask(python, json.dumps(header).encode())
    if not answer:
        raise InternalError(
            f"model '{config.name}': the process that completes its configuration {_end_of(status)}"
        )
    kind, value = json.loads(answer)
    if kind == "error":
        raise error_from_code(*value)
    return config_from_json(value)


async def _ask(python: str, question: bytes) -> tuple[bytes, int]:
    """What the process says before it ends, if anything, and its status."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await _spawn(python, theirs.fileno())
    reader, writer = await asyncio.open_connection(sock=ours)
    answer = b""
    try:
        with suppress(ConnectionError):
            writer.write(question)
            writer.write_eof()
            answer = await reader.read()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_SECONDS)
    finally:
        writer.close()
        await _kill(process)
    assert process.returncode is not None
    return answer, process.returncode


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End the process, and everything that the model has started there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _end_of(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    named = {number.value: f" ({number.name})" for number in signal.Signals}
    return f"was killed by signal {-status}{named.get(-status, '')}"


async def _spawn(python: str, descriptor: int) -> asyncio.subprocess.Process:
    packages = _package("penstock"), _package("penstock_backends")
    return await asyncio.create_subprocess_exec(
        python,
        "-P",
        bootstrap.__file__,
        "penstock_backends.python.completion:run",
        *map(str, (descriptor, os.getpid(), -1)),
        *packages,
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=(descriptor,),
        start_new_session=True,
    )


def _package(name: str) -> str:
    origin = sys.modules[name].__file__
    assert origin is not None
    return os.path.dirname(origin)

"""`PythonBackend`: what the server must know of models in Python; they run elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from penstock.core.backend import Backend, Host, InstanceContext, Outcome
from penstock.core.config import ModelConfig, config_from_json, config_to_json
from penstock.core.errors import InternalError
from penstock.core.request import InferenceRequest
from penstock_backends.python.environment.environment import interpreter
from penstock_backends.python.environment.one_shot import ask
from penstock_backends.python.model_code import shared_code
from penstock_backends.python.process.memory_limit import memory_limit

_SAYS_MORE = ("auto_complete_config", "penstock.model")

_COMPLETION = "penstock_backends.python.environment.completion:run"


class PythonBackend(Backend):
    """Models with a `model.py`; each instance is a process that `stub` serves."""

    host: ClassVar[Host] = "process"
    process_main: ClassVar[str] = "penstock_backends.python.process.process:run"

    @classmethod
    async def interpreter(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> str | None:
        """The Python of the model's own environment, or what the settings say."""
        code = shared_code(config.backend, config.runtime, settings)
        beside = code.path.parent if code else None
        return await interpreter(config, version_path.parent, beside) or settings.get("python")

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        """Ask the model, in a process of its own, when it has something to say."""
        code = shared_code(config.backend, config.runtime, settings)
        if not await asyncio.to_thread(_may_complete, code.path.parent if code else version_path):
            return config
        python = settings.get("python", sys.executable)
        return await _completed(config, version_path, settings, python)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        memory_limit(config)

    async def initialize(self, context: InstanceContext) -> None:
        raise InternalError("models in Python are served by a process of their own")

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        raise InternalError("models in Python are served by a process of their own")


def _may_complete(directory: Path) -> bool:
    """Whether any of the code mentions the hook; asking costs the start of a process.

    Code lies in `directory` and below it, and beside it where versions share some.
    """
    sources = [*directory.glob("**/*.py"), *directory.parent.glob("*.py")]
    return any(word in path.read_text(errors="replace") for path in sources for word in _SAYS_MORE)


async def _completed(
    config: ModelConfig, version_path: Path, settings: Mapping[str, str], python: str
) -> ModelConfig:
    described = config_to_json(config, with_defaults=True)
    header = {
        "config": described,
        "version_path": str(version_path),
        "settings": dict(settings),
    }
    what = f"model '{config.name}': the process that completes its configuration"
    return config_from_json(await ask(python, _COMPLETION, header, what))

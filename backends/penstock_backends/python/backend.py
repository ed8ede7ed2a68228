"""`PythonBackend`: the server's part of models in Python, which run in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.backend import (
    Backend,
    Inspectable,
    InstanceContext,
    Outcome,
    Traits,
    WithInterpreter,
)
from penstock.core.config import ModelConfig, config_from_json, config_to_json
from penstock.core.errors import InternalError
from penstock.core.request import InferenceRequest
from penstock_backends.python.environment.environment import check_environment, find_interpreter
from penstock_backends.python.environment.one_shot import run_one_shot
from penstock_backends.python.model_code import locate_code, shared_code

logger = logging.getLogger(__name__)

_HOOKS = ("auto_complete_config", "penstock.model")
"""Words of the code of models that may complete their configuration."""

_COMPLETION = "penstock_backends.python.environment.completion:run"


class PythonBackend(Inspectable, WithInterpreter, Backend):
    """Models with a `model.py`; each instance is a process, whose entry point is `process_main`."""

    traits = Traits(
        host="process", process_main="penstock_backends.python.process.process:run", spare=True
    )

    @classmethod
    async def interpreter(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> str | None:
        """The interpreter of the model's own environment, or that of the settings."""
        code = shared_code(config.backend, config.runtime, settings)
        beside = code.path.parent if code else None
        return await find_interpreter(config, version_path.parent, beside) or settings.get("python")

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        """Run the model's `auto_complete_config` in a one-shot process, if it may have one."""
        code = shared_code(config.backend, config.runtime, settings)
        if not await asyncio.to_thread(_may_complete, code.path.parent if code else version_path):
            return config
        python = settings.get("python", sys.executable)
        return await _completed(config, version_path, settings, python)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        if not config.input and not config.output:
            logger.warning(
                "model '%s' declares no inputs and outputs, so tensors of requests are refused; "
                "declare them in config.pbtxt or in its code",
                config.name,
                extra={"model": config.name},
            )

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        own_python = check_environment(config, version_path.parent) or "python" in settings
        code = locate_code(config_to_json(config), str(version_path), settings)
        if own_python:  # another version may take what this one does not
            _ = code.existing_path
        else:
            code.check()

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        return not (config.runtime or _may_complete(version_path))

    async def initialize(self, context: InstanceContext) -> None:
        raise InternalError("models in Python run in processes of their own, not in the server")

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        raise InternalError("models in Python run in processes of their own, not in the server")


def _may_complete(directory: Path) -> bool:
    """Whether any of the code mentions the hook; running it costs the start of a process.

    Code lies in `directory` and below it, and beside it where versions share some.
    """
    sources = [*directory.glob("**/*.py"), *directory.parent.glob("*.py")]
    return any(word in path.read_text(errors="replace") for path in sources for word in _HOOKS)


async def _completed(
    config: ModelConfig, version_path: Path, settings: Mapping[str, str], python: str
) -> ModelConfig:
    described = config_to_json(config, with_defaults=True)
    argument = {
        "config": described,
        "version_path": str(version_path),
        "settings": dict(settings),
    }
    what = f"model '{config.name}': the process that completes its configuration"
    return config_from_json(
        await run_one_shot(python, _COMPLETION, argument, what, {"model": config.name})
    )

"""Applications in the server, for models whose backend has none: what other packages announce."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from penstock.core.backend import Backend
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.core.http_exchange import AsgiApp
from penstock.models.serving.server_application import ServerApplication

logger = logging.getLogger(__name__)

GROUP: Final = "penstock.applications"
"""The entry point group of functions that make the application of a model by its configuration.

They are given the file or folder of the tokenizer that counts its tokens, too, where one is named.
They return `None` for a model that is not of their kind, and may raise what a backend may.
"""

TOKENIZER: Final = "penstock.openai_tokenizer"
"""Parameter of a model: the file or the folder of the tokenizer that its text is counted by."""

MakeApplication = Callable[[ModelConfig, Path | None], AsgiApp | None]


async def server_application(
    backend: type[Backend] | None, config: ModelConfig, version_path: Path, tokenizer: str = ""
) -> ServerApplication | None:
    """The application of a model, which refuses where there is none; `None`: its backend's own.

    `backend` is `None` for an ensemble. `tokenizer` is that of models whose configuration names
    none. Raises `ModelLoadError`.
    """
    if backend is not None and backend.openai_app is not Backend.openai_app:
        _warn_of_tokenizer(config, f"backend '{config.backend}' has an application of its own")
        return None
    application = ServerApplication(config.name, partial(_made, config, version_path, tokenizer))
    await application.start()
    return application


async def _made(config: ModelConfig, version_path: Path, tokenizer: str) -> AsgiApp | None:
    # On a thread, as it may import for a second.
    return await asyncio.to_thread(_first, config, version_path, tokenizer)


def _first(config: ModelConfig, version_path: Path, tokenizer: str) -> AsgiApp | None:
    found = _tokenizer(config, version_path) or (Path(tokenizer) if tokenizer else None)
    for entry in entry_points(group=GROUP):
        make: MakeApplication = entry.load()
        application = make(config, found)
        if application is not None:
            return application
    _warn_of_tokenizer(
        config, "its tensors are neither those of a text model nor of a text encoder"
    )
    return None


def _warn_of_tokenizer(config: ModelConfig, why: str) -> None:
    if config.parameter(TOKENIZER) is not None:
        logger.warning(
            "model '%s': parameter '%s' is without effect: %s", config.name, TOKENIZER, why
        )


def _tokenizer(config: ModelConfig, version_path: Path) -> Path | None:
    """The tokenizer that a configuration names, from the version's directory or the model's on."""
    name = config.parameter(TOKENIZER)
    if name is None:
        return None
    for folder in (version_path, version_path.parent):
        if name and (folder / name).exists():
            return folder / name
    raise ModelLoadError(
        f"parameter '{TOKENIZER}': '{name}' is neither in {version_path} nor above it"
    )

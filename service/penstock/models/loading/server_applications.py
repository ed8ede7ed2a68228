"""Applications in the server, for models whose backend has none: what other packages announce."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from typing import Final

from penstock.core.backend import Backend
from penstock.core.config import ModelConfig
from penstock.core.http_exchange import AsgiApp
from penstock.models.serving.server_application import ServerApplication

GROUP: Final = "penstock.applications"
"""The entry point group of functions that make the application of a model by its configuration.

They return `None` for a model that is not of their kind, and may raise what a backend may.
"""

MakeApplication = Callable[[ModelConfig], AsgiApp | None]


async def server_application(
    backend: type[Backend] | None, config: ModelConfig
) -> ServerApplication | None:
    """The application of a model, which refuses where there is none; `None`: its backend's own.

    `backend` is `None` for an ensemble.
    """
    if backend is not None and backend.openai_app is not Backend.openai_app:
        return None
    application = ServerApplication(config.name, partial(_made, config))
    await application.start()
    return application


async def _made(config: ModelConfig) -> AsgiApp | None:
    return await asyncio.to_thread(_first, config)  # which may import for a second


def _first(config: ModelConfig) -> AsgiApp | None:
    for entry in entry_points(group=GROUP):
        make: MakeApplication = entry.load()
        application = make(config)
        if application is not None:
            return application
    return None

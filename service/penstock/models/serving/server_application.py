"""`ServerApplication`: OpenAI's API of a model, answered in the server by means of its tensors."""

from __future__ import annotations

import time
from typing import Any

from penstock.core.application import BackendApplication, OpenApplication
from penstock.core.delivery import deliver
from penstock.inflight.inference import Inference, start_batch


class ServerApplication:
    """The application of a model whose backend has none; where nothing makes one, the refusal."""

    def __init__(self, model: str, open_application: OpenApplication) -> None:
        self._model = model
        self._application = BackendApplication(None, model, open_application)

    async def start(self) -> None:
        """Make the application; what fails is logged, and told to clients."""
        await self._application.start()

    @property
    def opened(self) -> bool:
        """Whether there is an application."""
        return self._application.opened

    def schedule(self, inference: Inference) -> None:
        """Answer an exchange now: what it asks of the model waits for its own turn."""
        start_batch((inference,), time.monotonic_ns(), self._model)
        deliver(self._application.answer(inference.request), inference.stream)

    async def description(self) -> dict[str, Any]:
        """The application's OpenAPI document; empty without one."""
        return await self._application.description()

    async def close(self) -> None:
        """End what is running."""
        await self._application.close()

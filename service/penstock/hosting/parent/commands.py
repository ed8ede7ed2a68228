"""`Commands`: commands of operators to one model process, and their replies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import InferenceError, UnavailableError, error_from_code
from penstock.hosting.link.messages import Commanded, Kind
from penstock.hosting.link.response_sender import Send


class Commands:
    """Sends commands and matches the replies by number; who no longer waits cancels nothing."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ended: InferenceError | None = None

    def __len__(self) -> int:
        """Number of commands that are not answered."""
        return len(self._waiting)

    async def ask(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """What the backend returns; raises what it raises."""
        if self._ended is not None:
            raise self._ended
        self._last += 1
        future = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = future
        self._send(Kind.COMMAND, (self._last, action, json.dumps(dict(arguments))))
        return await future

    def on_commanded(self, header: Commanded, _: memoryview) -> None:
        """Handle a reply."""
        number, text, problem = header
        future = self._waiting.pop(number)
        if future.done():  # nobody waits any more
            return
        if problem is not None:
            future.set_exception(error_from_code(*problem))
        else:
            future.set_result(json.loads(text))

    def close(self) -> None:
        """The process is gone: no reply will come."""
        self._ended = UnavailableError("the model process ended before the command was carried out")
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._ended)

"""`PushedRequest`: a request that vLLM has, whose outputs it pushes as it makes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

Put = Callable[[Any], None]
"""Takes one `RequestOutput`, or the exception that ends the request."""

_ABORTING: set[asyncio.Task[None]] = set()


class PushedRequest:
    """Has `put` called in the place of vLLM's collector.

    That one sets an event, for which a task waits that runs a generator; here an output is handled
    where vLLM makes it, and there is neither.
    """

    def __init__(self, llm: Any, collector: Any, put: Put) -> None:
        self._llm = llm
        self._id = collector.request_id
        collector.put = put
        if (early := _early(collector)) is not None:
            put(early)

    def abort(self) -> None:
        """Have the engine stop; outputs are put until it has, and one without tokens then."""
        task = asyncio.get_running_loop().create_task(self._abort())
        _ABORTING.add(task)
        task.add_done_callback(_ABORTING.discard)

    async def _abort(self) -> None:
        if self._llm.errored:
            return  # all requests have ended with it
        try:
            await self._llm.abort(self._id, internal=True)
        except Exception:  # vLLM's own, of any kind
            logger.exception("vLLM could not abort a request")


def _early(collector: Any) -> Any:
    """The output or exception that came while the request was added; `None` without one."""
    try:
        return collector.get_nowait()
    except Exception as error:
        return error

"""`Pump`: relays a response generator of a backend to the response stream, under backpressure.

Apart from `delivery`, since mypyc cannot translate `await` in `finally`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from penstock.core.errors import InternalError, RequestCancelledError, as_inference_error
from penstock.core.log.log_throttle import log_fault
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream

logger = logging.getLogger(__name__)


class Pump:
    """Sends the responses of an async iterator to a stream, in a task of its own."""

    def __init__(self, source: AsyncIterator[InferenceResponse], sink: ResponseStream) -> None:
        self._source = source
        self._sink = sink
        self._begun = False
        self.task = asyncio.get_running_loop().create_task(self._run())
        sink.connect(self._cancel)

    def _cancel(self) -> None:
        # A task cancelled before its first step never runs, so it could not close the source;
        # left alone, it sees that the reader has left.
        if self._begun:
            self.task.cancel()

    async def _run(self) -> None:
        self._begun = True
        sink, source = self._sink, self._source
        try:
            while not sink.ended:
                # Not `anext()`, which would make an object for each response.
                sink.send(_checked(await source.__anext__()))
                if sink.full:
                    await sink.room()
        except StopAsyncIteration:
            sink.end()
        except asyncio.CancelledError:
            sink.fail(RequestCancelledError())
            raise
        except Exception as error:  # a backend may raise anything
            sink.fail(as_inference_error(error))
        finally:
            await _close(source)


def no_response(answer: object) -> InternalError:
    return InternalError(f"backend answered with {type(answer).__name__}, not a response")


def _checked(response: InferenceResponse) -> InferenceResponse:
    if not isinstance(response, InferenceResponse):  # foreign code may break its type hints
        raise no_response(response)
    return response


async def _close(source: AsyncIterator[InferenceResponse]) -> None:
    close = getattr(source, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except Exception as error:  # the client has its answer already
        log_fault(logger, error, "closing a response generator failed")

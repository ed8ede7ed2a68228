"""`InferenceResponse`, and the iterators over the responses to one request."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.errors import InferenceError, as_inference_error
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor as CoreTensor
from penstock.in_process.errors import InvalidArgumentError, TritonError, error_from
from penstock.in_process.loop_thread import LoopThread
from penstock.in_process.request import InferenceRequest, NamedModel
from penstock.in_process.tensor import Tensor, host_tensor


@dataclass
class InferenceResponse:
    """One response. `final` marks the last; a decoupled model may end with one without outputs."""

    model: NamedModel
    request_id: str | None = None
    parameters: dict[str, str | int | bool | float] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    error: TritonError | None = None
    classification_label: str | None = None
    final: bool = False


class Reader(Protocol):
    """The source of iterators, read on the server's event loop."""

    async def next(self) -> InferenceResponse | None:
        """The next response, `None` behind the last."""

    def cancel(self) -> None:
        """Cancel the request; what follows is the error that says so."""


class ResponseReader:
    """The reader of a stream: its responses as those of this API, one after the other."""

    def __init__(
        self, request: InferenceRequest, stream: ResponseStream, model: NamedModel, decoupled: bool
    ) -> None:
        self._request = request
        self._stream = stream
        self._model = model
        self._decoupled = decoupled
        self._finished = False

    async def next(self) -> InferenceResponse | None:
        """The next response, `None` behind the last."""
        if self._finished:
            return None
        try:
            response = await anext(self._stream)
        except StopAsyncIteration:
            return self._ended()
        except InferenceError as error:
            return self._failed(error)
        if response.error is not None:
            return self._failed(response.error)
        return self._made(response)

    def cancel(self) -> None:
        """Cancel the request; the iterators then get its error."""
        self._stream.abort(as_inference_error(asyncio.CancelledError()))

    def _made(self, response: CoreResponse) -> InferenceResponse:
        self._finished = response.final or not self._decoupled
        # Memory of the link to a model process may be given back on its own thread only.
        outputs = {name: host_tensor(_copied(t)) for name, t in response.outputs.items()}
        wanted = self._request.output_memory_type
        if wanted is not None:
            try:
                outputs = {name: tensor.to_device(wanted) for name, tensor in outputs.items()}
            except TritonError as error:
                refused = InvalidArgumentError(f"Memory type {wanted} not supported: {error}")
                return self._response(error=refused, final=self._finished)
        return self._response(
            parameters=dict(response.parameters), outputs=outputs, final=self._finished
        )

    def _ended(self) -> InferenceResponse | None:
        """The end of a stream without a final response is one."""
        self._finished = True
        return self._response(final=True) if self._decoupled else None

    def _failed(self, error: InferenceError) -> InferenceResponse:
        self._finished = True
        return self._response(error=error_from(error), final=True)

    def _response(self, **values: Any) -> InferenceResponse:
        return InferenceResponse(self._model, self._request.request_id or "", **values)


class QueueReader:
    """A reader whose responses also go to a queue of the caller, whether they are read or not."""

    def __init__(self, reader: Reader, put: Callable[[InferenceResponse], None]) -> None:
        self._reader = reader
        self._put = put
        self._waiting: asyncio.Queue[InferenceResponse | None] = asyncio.Queue()
        self._pump = asyncio.ensure_future(self._read())

    async def next(self) -> InferenceResponse | None:
        """The next response, `None` behind the last."""
        if self._pump.done() and self._waiting.empty():
            return None
        response = await self._waiting.get()
        if response is None:
            await self._pump  # raises what has ended it early
        return response

    def cancel(self) -> None:
        """Cancel the request."""
        self._reader.cancel()

    async def _read(self) -> None:
        try:
            while (response := await self._reader.next()) is not None:
                self._put(response)
                self._waiting.put_nowait(response)
        finally:
            self._waiting.put_nowait(None)


class _Responses:
    """The base of both iterators: the reader and its loop.

    Dropping an iterator in the middle cancels the request: its other responses are not wanted.
    One that nothing was taken from lets it run: its effect may be what was wanted.
    """

    def __init__(self, loop: LoopThread, reader: Reader, raise_on_error: bool) -> None:
        self._loop = loop
        self._reader = reader
        self._raise_on_error = raise_on_error
        self._dropped = weakref.finalize(self, loop.start_quietly, _drain, reader)
        self._dropped.atexit = False

    def cancel(self) -> None:
        """Cancel the request; iterating goes on to the error that says so."""
        self._loop.call(self._reader.cancel)

    def _next(self) -> Future[InferenceResponse | None]:
        if self._dropped.detach() is not None:
            left = weakref.finalize(self, self._loop.call, self._reader.cancel)
            left.atexit = False
        return self._loop.start(self._reader.next())

    def _checked(self, response: InferenceResponse) -> InferenceResponse:
        if response.error is not None and self._raise_on_error:
            error = response.error
            error.args = (*error.args, response)
            raise error
        return response


class ResponseIterator(_Responses):
    """The responses to a request, for threads that may wait."""

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        response = self._next().result()
        if response is None:
            raise StopIteration
        return self._checked(response)


class AsyncResponseIterator(_Responses):
    """The responses to a request, for coroutines of any event loop."""

    def __aiter__(self) -> AsyncResponseIterator:
        return self

    async def __anext__(self) -> InferenceResponse:
        response = await asyncio.wrap_future(self._next())
        if response is None:
            raise StopAsyncIteration
        return self._checked(response)


async def _drain(reader: Reader) -> None:
    """Read all responses and drop them."""
    while await reader.next() is not None:
        pass


def _copied(tensor: CoreTensor) -> CoreTensor:
    return CoreTensor(tensor.datatype, tensor.shape, bytearray(tensor.buffer))

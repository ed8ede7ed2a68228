"""`Client`: calls to one server, or to several that serve the same models."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import numpy as np

from penstock.core.tensor import Array
from penstock_client.client import generation
from penstock_client.client.conversion import Value, converted, is_typed, typed
from penstock_client.client.errors import ClientError, InvalidArgumentError, UnavailableError
from penstock_client.client.policy import CallPolicy
from penstock_client.client.request import InferRequest, Parameter, Result
from penstock_client.client.server_calls import ONCE, ServerCalls
from penstock_client.client.shared_memory import SharedMemory, SharedTensor
from penstock_client.client.transport import Transport
from penstock_client.reading.views import ModelMetadata, TensorMetadata

_TEXTS_AT_A_TIME = 256
Outputs = Iterable[str] | Mapping[str, SharedTensor | None]


class Client(ServerCalls):
    """A client of the KServe v2 protocol, to be used by `async with` on one event loop.

    `addresses` are `HOST:PORT` or `grpc://`, `grpcs://`, `http://`, `https://` URLs; of several,
    each call goes to one that is up and has the fewest open calls. `timeout` is the deadline of
    each call in seconds, with all its attempts, where the call has none of its own; `headers` go
    with each call; `policy` says what is tried again. Every call raises a `ClientError`;
    cancelling one, or closing a stream, cancels the request at the server.
    """

    # -- inference ----------------------------------------------------------------------------

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, Value],
        *,
        outputs: Outputs = (),
        version: str = "",
        id: str = "",
        parameters: Mapping[str, Parameter] | None = None,
        sequence: int | str = 0,
        start: bool = False,
        end: bool = False,
        priority: int = 0,
        timeout: float | None = None,
        policy: CallPolicy | None = None,
    ) -> Result:
        """The response of a model that answers once.

        Arrays are sent as they are; lists, numbers and strings take the datatype of the model's
        input. `outputs` are those wanted, all by default; a mapping names shared memory for them.
        Requests of a `sequence` go to one address, in the order of the calls, and are tried once.
        """
        extra = _extras(sequence, start, end, priority)
        request = await self._request(
            model, version, inputs, outputs, id, {**(parameters or {}), **extra}, timeout
        )
        return await self._call(
            lambda transport, left: transport.infer(request, left),
            timeout,
            ONCE if sequence else policy,
            _key(model, sequence),
        )

    async def stream(
        self,
        model: str,
        inputs: Mapping[str, Value],
        *,
        outputs: Outputs = (),
        version: str = "",
        id: str = "",
        parameters: Mapping[str, Parameter] | None = None,
        sequence: int | str = 0,
        start: bool = False,
        end: bool = False,
        priority: int = 0,
        timeout: float | None = None,
        policy: CallPolicy | None = None,
    ) -> AsyncGenerator[Result, None]:
        """The responses of a model, of a decoupled one any number.

        Leaving the loop early cancels the request once the generator is closed: at once with
        `contextlib.aclosing`, else when Python collects it. Tried again only before a response,
        and never hedged: a `policy` with `hedge_after` is refused, that of the client is without
        it here. Requests of a `sequence` are as those of `infer`.
        """
        if policy is not None and policy.hedge_after is not None:
            raise InvalidArgumentError("a stream is not hedged: its policy cannot have hedge_after")
        extra = _extras(sequence, start, end, priority)
        request = await self._request(
            model, version, inputs, outputs, id, {**(parameters or {}), **extra}, timeout
        )
        answers = self._caller.stream(
            lambda transport, left: transport.stream(request, left),
            self._timeout if timeout is None else timeout,
            ONCE if sequence else policy or self._caller.policy,
            _key(model, sequence),
        )
        async with aclosing(answers):
            async for answer in answers:
                yield answer

    async def generate(
        self,
        model: str,
        prompt: str | bytes,
        *,
        version: str = "",
        id: str = "",
        parameters: Mapping[str, Parameter] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        policy: CallPolicy | None = None,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        """The text of a language model, piece by piece as it is generated.

        `options` are the model's own, such as `max_tokens`, `temperature`, `stop` and `seed`;
        `parameters` are those of the request, whatever the model takes its options by. Ends as
        `stream` does. Raises `InvalidArgumentError` where the model answers with several texts at
        once, as for `n` of 2, which would be mixed into one.
        """
        metadata = await self.model_metadata(model, version, timeout=timeout)
        inputs, others = generation.prompt_inputs(metadata, prompt, options)
        name = generation.answer_name(metadata)
        answers = self.stream(
            model,
            inputs,
            outputs=[name],
            version=version,
            id=id,
            parameters={**others, **(parameters or {})},
            priority=priority,
            timeout=timeout,
            policy=policy,
        )
        async with aclosing(answers):
            async for answer in answers:
                texts = answer.texts(name) if name in answer else []
                if len(texts) > 1:
                    raise InvalidArgumentError(
                        f"model '{model}' answers with {len(texts)} texts at once, which "
                        "`generate` would mix: use `stream`"
                    )
                if texts and texts[0]:
                    yield texts[0]

    async def embed(self, model: str, texts: Iterable[str], **options: Any) -> Array:
        """The vectors of texts, one row for each. The first that fails ends all.

        `options` are the keyword arguments of `embed_each`, which leaves the others alone.
        """
        rows: list[Array] = []
        async with aclosing(self.embed_each(model, texts, **options)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, ClientError):
                    raise outcome
                rows.append(outcome)
        return np.stack(rows) if rows else np.empty((0, 0), np.float32)

    async def embed_each(
        self,
        model: str,
        texts: Iterable[str],
        *,
        version: str = "",
        id: str = "",
        parameters: Mapping[str, Parameter] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        policy: CallPolicy | None = None,
    ) -> AsyncGenerator[Array | ClientError, None]:
        """The vector of each text, in their order, or the error of those that fail.

        Texts are sent one a request, up to 256 at a time, so that the server batches them with
        others'; they are taken from `texts` as there is room. With an `id` those of the requests
        are `id-0`, `id-1` and so on; `timeout` is for each.
        """
        metadata = await self.model_metadata(model, version, timeout=timeout)
        source, target = _tensor_names(metadata)

        async def vector(number: int, text: str) -> Array | ClientError:
            try:
                result = await self.infer(
                    model,
                    {source: text},
                    outputs=[target],
                    version=version,
                    id=f"{id}-{number}" if id else "",
                    parameters=parameters,
                    priority=priority,
                    timeout=timeout,
                    policy=policy,
                )
            except ClientError as error:
                return error
            return result[target].reshape(-1)

        async with aclosing(in_order(vector, texts, _TEXTS_AT_A_TIME)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    # -- shared memory ------------------------------------------------------------------------

    @asynccontextmanager
    async def shared_memory(self, size: int) -> AsyncIterator[SharedMemory]:
        """Memory of `size` bytes that this client's servers know until the end of the block.

        They must be on this machine, and allow it (`--allow-client-shm=true`).
        """
        memory = SharedMemory(size)
        known: list[Transport] = []
        try:
            for transport in self._caller.transports:
                await transport.register(memory.name, memory.key, memory.size, self._timeout)
                known.append(transport)
            yield memory
        finally:
            try:
                for transport in known:
                    await _forget(transport, memory.name, self._timeout)
            finally:
                memory.close()

    async def _request(
        self,
        model: str,
        version: str,
        inputs: Mapping[str, Value],
        outputs: Outputs,
        id: str,
        parameters: Mapping[str, Parameter],
        timeout: float | None,
    ) -> InferRequest:
        if all(map(is_typed, inputs.values())):
            tensors = {name: typed(value) for name, value in inputs.items()}
        else:
            tensors = converted(inputs, await self.model_metadata(model, version, timeout=timeout))
        places = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
        return InferRequest(model, version, tensors, places, id, parameters)


def _extras(sequence: int | str, start: bool, end: bool, priority: int) -> dict[str, Parameter]:
    """The parameters by which the protocol knows sequences and priorities."""
    extra: dict[str, Parameter] = {"priority": priority} if priority else {}
    if sequence:
        extra |= {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
    return extra


def _key(model: str, sequence: int | str) -> str:
    """The key of requests that must stay at one address; empty for all others."""
    return f"{model}:{sequence}" if sequence else ""


async def _forget(transport: Transport, name: str, timeout: float | None) -> None:
    try:
        await transport.unregister(name, timeout)
    except UnavailableError:  # a server that is gone knows nothing any more
        return


Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


async def in_order(
    call: Callable[[int, Item], Awaitable[Outcome]], items: Iterable[Item], size: int
) -> AsyncGenerator[Outcome, None]:
    """The outcomes of a call for each item and its number, in their order.

    Up to `size` are open; items are taken as there is room. Closing the generator cancels those
    that are open.
    """
    window: deque[asyncio.Future[Outcome]] = deque()
    try:
        for number, item in enumerate(items):
            if len(window) == size:
                yield await window[0]
                window.popleft()
            window.append(asyncio.ensure_future(call(number, item)))
        while window:
            yield await window[0]
            window.popleft()
    finally:
        for one in window:
            one.cancel()
        await asyncio.gather(*window, return_exceptions=True)


def _tensor_names(metadata: ModelMetadata) -> tuple[str, str]:
    """The input for texts and the output of vectors; raises `InvalidArgumentError`."""
    texts = [tensor for tensor in metadata.inputs if tensor.datatype == "BYTES"]
    vectors = [tensor for tensor in metadata.outputs if tensor.datatype.startswith(("FP", "BF"))]
    if len(texts) != 1 or not vectors:
        raise InvalidArgumentError(
            f"model '{metadata.name}' does not embed texts: that takes one input of strings and an"
            " output of floating-point numbers; use `infer` for it"
        )
    return texts[0].name, _best(vectors).name


def _best(vectors: list[TensorMetadata]) -> TensorMetadata:
    return next((tensor for tensor in vectors if "embed" in tensor.name.lower()), vectors[0])

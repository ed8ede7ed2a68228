"""A program that asks a server what it is told to, with the stock client of its users.

    python client_program.py grpc|http HOST:PORT

Orders come on standard input, as pickles of `(number, verb, arguments)`; what comes of them leaves
on standard output, as pickles of `(number, what)`. All orders are under way at the same time.
"""

from __future__ import annotations

import asyncio
import importlib
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

_NO_LIMIT = 1 << 31


class Program:
    """The orders that are being carried out."""

    def __init__(self, flavour: str, target: str) -> None:
        # One of them: the other takes as long to import as all the rest.
        self._flavour = importlib.import_module(f"tritonclient.{flavour}.aio")
        self._client = self._flavour.InferenceServerClient(target)
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(self, number: int, verb: str, arguments: dict[str, Any]) -> None:
        """Carry out an order; to cancel is one too."""
        if verb == "cancel":
            self._tasks[number].cancel()
            return
        work = self._carry_out(number, getattr(self, f"_{verb}"), arguments)
        self._tasks[number] = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        """Break off everything."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        with suppress(Exception):
            await self._client.close()

    async def _carry_out(self, number: int, work: Callable[..., Any], arguments: Any) -> None:
        try:
            async for what in work(**arguments):
                tell(number, what)
        except InferenceServerException as error:
            tell(number, failure(error))
        except asyncio.CancelledError:
            tell(number, ("cancelled",))
        except Exception as error:  # a fault of the client's, which nobody would hear of
            tell(number, ("error", type(error).__name__, repr(error)))
        tell(number, ("end",))

    async def _infer(self, inputs: dict[str, Any], **arguments: Any) -> AsyncIterator[Any]:
        tensors = self._tensors(inputs)
        result = await self._client.infer(inputs=tensors, **self._options(arguments))
        yield answer(result)

    async def _stream(self, inputs: dict[str, Any], **arguments: Any) -> AsyncIterator[Any]:
        async def request() -> AsyncIterator[dict[str, Any]]:
            options = {"enable_empty_final_response": True, **self._options(arguments)}
            yield {"inputs": self._tensors(inputs), **options}

        async for result, error in self._client.stream_infer(request()):
            yield answer(result) if error is None else failure(error)

    async def _talk(self, requests: list[dict[str, Any]]) -> AsyncIterator[Any]:
        """Several requests on one stream, one after the other."""

        async def spoken() -> AsyncIterator[dict[str, Any]]:
            for request in requests:
                options = {k: v for k, v in request.items() if k != "inputs"}
                yield {"inputs": self._tensors(request["inputs"]), **self._options(options)}

        async for result, error in self._client.stream_infer(spoken()):
            yield answer(result) if error is None else failure(error)

    async def _call(self, method: str, **arguments: Any) -> AsyncIterator[Any]:
        """Any other method of the client."""
        yield "value", await getattr(self._client, method)(**arguments)

    def _options(self, arguments: dict[str, Any]) -> dict[str, Any]:
        names = arguments.pop("outputs", None)
        if names is not None:
            wanted = [self._flavour.InferRequestedOutput(name) for name in names]
            arguments["outputs"] = wanted
        return arguments

    def _tensors(self, inputs: dict[str, Any]) -> list[Any]:
        tensors = []
        for name, array in inputs.items():
            tensor = self._flavour.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            tensors.append(tensor)
        return tensors


def answer(result: Any) -> tuple[Any, ...]:
    """A response: its tensors and its parameters."""
    response = result.get_response()
    if isinstance(response, dict):
        names, parameters = [o["name"] for o in response["outputs"]], response.get("parameters", {})
    else:
        names = [output.name for output in response.outputs]
        parameters = {
            k: getattr(v, v.WhichOneof("parameter_choice")) for k, v in response.parameters.items()
        }
    # Copies, since the arrays are views of the message, which pickle would take along each time.
    return "answer", {name: np.array(result.as_numpy(name)) for name in names}, parameters


def value_of(choice: Any) -> Any:
    """The value in a parameter of the protocol."""
    return getattr(choice, choice.WhichOneof("parameter_choice"))


def failure(error: Any) -> tuple[Any, ...]:
    """An error: its code, without the name of its class, and its text."""
    return "error", str(error.status()).rpartition(".")[2], error.message()


def tell(number: int, what: Any) -> None:
    """Say what came of an order."""
    pickle.dump((number, what), sys.stdout.buffer)
    sys.stdout.buffer.flush()


async def main(flavour: str, target: str) -> None:
    """Carry out orders until there are no more."""
    program, loop, done = Program(flavour, target), asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        with suppress(EOFError):
            while True:
                loop.call_soon_threadsafe(program.begin, *pickle.load(sys.stdin.buffer))
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=read, daemon=True).start()
    await done.wait()
    await program.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

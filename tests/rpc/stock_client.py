"""A program that uses the stock Triton client; run as `python stock_client.py HOST:PORT`.

Prints one line of JSON: what each of the functions below has found, by its name.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import numpy as np
import tritonclient.grpc as sync
import tritonclient.grpc.aio as aio
from tritonclient.utils import InferenceServerException

ONE = np.arange(4, dtype=np.float32)


def inputs(kind: Any, **arrays: Any) -> list[Any]:
    """Input tensors by name."""
    made = []
    for name, array in arrays.items():
        datatype = {"float32": "FP32", "int32": "INT32", "uint32": "UINT32"}[array.dtype.name]
        tensor = kind.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


def repeat(kind: Any, count: int, delay: int = 0) -> list[Any]:
    """Inputs for `count` responses."""
    return inputs(
        kind,
        IN=np.arange(count, dtype=np.int32),
        DELAY=np.full(count, delay, np.uint32),
        WAIT=np.zeros(1, np.uint32),
    )


# -- the synchronous client -----------------------------------------------------------------------


def metadata(client: Any) -> Any:
    config = client.get_model_config("identity", as_json=True)["config"]
    statistics = client.get_inference_statistics("identity", as_json=True)
    return {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model ready": client.is_model_ready("identity"),
        "server": client.get_server_metadata(as_json=True)["name"],
        "model": client.get_model_metadata("identity", as_json=True)["versions"],
        "config": config["backend"],
        "statistics": [model["version"] for model in statistics["model_stats"]],
        "index": [model.name for model in client.get_model_repository_index().models],
    }


def infer(client: Any) -> Any:
    outputs = [sync.InferRequestedOutput("OUT")]
    result = client.infer(
        "identity", inputs(sync, IN=ONE), outputs=outputs, request_id="r", parameters={"p": 1}
    )
    return [result.as_numpy("OUT").tolist(), result.get_response().id]


def infer_async(client: Any) -> Any:
    answers: queue.Queue[Any] = queue.Queue()
    call = partial(client.async_infer, callback=lambda result, error: answers.put((result, error)))
    call("identity", inputs(sync, IN=ONE))
    result, error = answers.get(timeout=60)
    return [result.as_numpy("OUT").tolist(), error]


def error(client: Any) -> Any:
    try:
        client.infer("nothing", inputs(sync, IN=ONE))
    except InferenceServerException as failure:
        return [failure.status(), failure.message()]


def stream(client: Any) -> Any:
    """Two decoupled requests, of which one asks for the empty final response, and an error."""
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        "repeat", repeat(sync, 2), request_id="f", enable_empty_final_response=True
    )
    client.async_stream_infer("nothing", repeat(sync, 2), request_id="x")
    client.async_stream_infer("repeat", repeat(sync, 2), request_id="p")
    client.stop_stream()
    seen: dict[str, Any] = {"f": [], "p": [], "errors": []}
    while not answers.empty():
        result, failure = answers.get()
        if failure is not None:
            seen["errors"].append(str(failure))
            continue
        response = result.get_response()
        value = result.as_numpy("OUT")
        final = response.parameters["triton_final_response"].bool_param
        seen[response.id].append([None if value is None else int(value[0]), final])
    return seen


def stream_cancelled(client: Any) -> Any:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    client.async_stream_infer("repeat", repeat(sync, 1000, delay=5))
    result, _ = answers.get(timeout=60)
    client.stop_stream(cancel_requests=True)
    return int(result.as_numpy("OUT")[0])


# -- the asyncio client ---------------------------------------------------------------------------


async def aio_infer(client: Any) -> Any:
    results = await asyncio.gather(
        *(client.infer("batched", inputs(aio, IN=np.full((1, 2), n, "f4"))) for n in range(50))
    )
    return [int(result.as_numpy("OUT")[0, 0]) for result in results] == list(range(50))


async def aio_stream(client: Any) -> Any:
    """This client knows no way to ask for the empty final response; the key is ignored."""

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for id in "ab":
            yield {
                "model_name": "repeat",
                "inputs": repeat(aio, 2),
                "request_id": id,
                "enable_empty_final_response": True,
            }

    seen: dict[str, list[bool]] = {"a": [], "b": []}
    async for result, _ in client.stream_infer(requests()):
        response = result.get_response()
        seen[response.id].append(response.parameters["triton_final_response"].bool_param)
    return seen


async def aio_cancelled(client: Any) -> Any:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "repeat", "inputs": repeat(aio, 1000, delay=5)}
        await asyncio.Event().wait()

    answers = client.stream_infer(requests())
    result, _ = await anext(answers)
    answers.cancel()
    return int(result.as_numpy("OUT")[0])


async def aio_all(target: str) -> dict[str, Any]:
    async with aio.InferenceServerClient(target) as client:
        asked = (aio_infer, aio_stream, aio_cancelled)
        return {function.__name__: await function(client) for function in asked}


def main() -> None:
    target = sys.argv[1]
    with sync.InferenceServerClient(target) as client:
        asked = (metadata, infer, infer_async, error, stream, stream_cancelled)
        found = {function.__name__: function(client) for function in asked}
    print(json.dumps(found | asyncio.run(aio_all(target))))


main()

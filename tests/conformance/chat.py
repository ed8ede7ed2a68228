"""A program that streams from a language model with the stock client, as a user would write it.

    python chat.py HOST:PORT '[{"id": ..., "prompt": ..., "sampling": {...}}, ...]'

`cancel_after` of a request cancels it after so many messages.

Every request has a stream of its own, all run at once. Prints one line of JSON: by id, the text,
the number of messages, whether the last one was flagged, and the error if there was one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpcclient


def tensor(name: str, value: Any, datatype: str) -> Any:
    """An input of one element."""
    array = np.array([value], dtype=np.object_ if datatype == "BYTES" else np.bool_)
    made = grpcclient.InferInput(name, [1], datatype)
    made.set_data_from_numpy(array)
    return made


async def converse(client: Any, request: dict[str, Any]) -> dict[str, Any]:
    """One request, to its end or until it is cancelled."""

    async def requests() -> Any:
        yield {
            "model_name": request.get("model", "tiny_llm"),
            "request_id": request["id"],
            "inputs": [
                tensor("text_input", request["prompt"].encode(), "BYTES"),
                tensor("stream", True, "BOOL"),
                tensor("sampling_parameters", json.dumps(request["sampling"]).encode(), "BYTES"),
            ],
        }

    answers = client.stream_infer(requests())
    seen: dict[str, Any] = {"text": "", "messages": 0, "final": False, "error": None}
    async for result, error in answers:
        if error is not None:
            seen["error"] = str(error)
            continue
        text = result.as_numpy("text_output")
        if text is not None:
            seen["messages"] += 1
            seen["text"] += text[0].decode()
        parameters = result.get_response().parameters
        seen["final"] = parameters["triton_final_response"].bool_param
        if request.get("cancel_after") == seen["messages"]:
            answers.cancel()
            seen["cancelled"] = True
            break
    return seen


async def main(target: str, requests: list[dict[str, Any]]) -> None:
    """Run all requests at once."""
    async with grpcclient.InferenceServerClient(target) as client:
        seen = await asyncio.gather(*(converse(client, request) for request in requests))
    print(json.dumps({r["id"]: s for r, s in zip(requests, seen, strict=True)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))

"""A stock client of Triton that asks a language model."""

from __future__ import annotations

import json
import queue
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from harness.serving import Served

PROMPT = "The file is"


@dataclass(frozen=True, slots=True)
class Reply:
    """All responses to one request, and the error that ended it."""

    responses: list[dict[str, list[Any]]]
    finals: list[bool]
    error: str | None

    @property
    def text(self) -> str:
        return "".join(response["text_output"][0] for response in self.responses)

    def all(self, name: str) -> list[Any]:
        return [value for response in self.responses for value in response[name]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A server, and requests to its model `m`."""

    server: Served
    engine: str

    def ask(self, prompt: str | None = PROMPT, sampling: Any = None, **inputs: Any) -> Reply:
        """The answer to one request over a stream of its own."""
        values = dict(inputs)
        if prompt is not None:
            values["text_input"] = prompt
        if sampling is not None:
            values["sampling_parameters"] = json.dumps(sampling)
        events: queue.Queue[Any] = queue.Queue()
        reply = Reply([], [], None)
        with grpcclient.InferenceServerClient(self.server.grpc) as client:
            client.start_stream(lambda result, error: events.put((result, error)))
            client.async_stream_infer(
                "m",
                [_tensor(name, value) for name, value in values.items()],
                enable_empty_final_response=True,
            )
            while True:
                result, error = events.get(timeout=120)
                if error is not None:
                    return Reply(reply.responses, reply.finals, error.message())
                response = result.get_response()
                final = response.parameters["triton_final_response"].bool_param
                if response.outputs:
                    reply.responses.append(
                        {output.name: _plain(result, output.name) for output in response.outputs}
                    )
                    reply.finals.append(final)
                if final:
                    return reply


def _tensor(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array, datatype = value, "INT32"
    elif isinstance(value, bool):
        array, datatype = np.array([value]), "BOOL"
    else:
        content = value.encode() if isinstance(value, str) else value
        array, datatype = np.array([content], dtype=np.object_), "BYTES"
    tensor = grpcclient.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def _plain(result: Any, name: str) -> list[Any]:
    values = result.as_numpy(name).ravel().tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]

"""Asks the pipeline with tritonclient alone, over gRPC, and prints the answer as it comes.

python client.py HOST:PORT "How does one open a file?" [--image clock.png] [--cancel-after N]

The last line is JSON: the passage that was found, how many pieces of text came, and when the first
and the last of them came.
"""

from __future__ import annotations

import argparse
import json
import queue
import time
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient


def tensor(name: str, value: Any, datatype: str) -> grpcclient.InferInput:
    made = grpcclient.InferInput(name, [1], datatype)
    made.set_data_from_numpy(np.array([value], object if datatype == "BYTES" else bool))
    return made


def inputs(options: argparse.Namespace) -> list[grpcclient.InferInput]:
    sampling = {"max_tokens": options.max_tokens, "temperature": 0}
    if options.cancel_after:
        sampling["ignore_eos"] = True  # so that there is something to cancel
    return [
        *asked("text_input", options),
        tensor("stream", True, "BOOL"),
        tensor("exclude_input_in_output", True, "BOOL"),
        tensor("sampling_parameters", json.dumps(sampling).encode(), "BYTES"),
    ]


def asked(name: str, options: argparse.Namespace) -> list[grpcclient.InferInput]:
    """The question under this name, and the picture."""
    question = tensor(name, options.question.encode(), "BYTES")
    if options.image is None:
        return [question]
    return [question, tensor("image", options.image.read_bytes(), "BYTES")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("question")
    parser.add_argument("--image", type=Path, help="a JPEG, PNG or WebP")
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--cancel-after", type=int, default=0, help="pieces of text")
    parser.add_argument("--traceparent", help="a trace context, of W3C")
    options = parser.parse_args()
    headers = {"traceparent": options.traceparent} if options.traceparent else None
    answers: queue.Queue[Any] = queue.Queue()
    times: list[float] = []
    with grpcclient.InferenceServerClient(options.address) as client:
        found = client.infer("find", asked("question", options))
        begun = time.perf_counter()
        client.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
        client.async_stream_infer("rag", inputs(options), enable_empty_final_response=True)
        while True:
            result, error = answers.get(timeout=60)
            if error is not None:
                raise SystemExit(f"the server: {error}")
            if (text := result.as_numpy("text_output")) is not None:
                print(text.ravel()[0].decode(), end="", flush=True)
                times.append(time.perf_counter() - begun)
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
            if len(times) == options.cancel_after:
                break
        client.stop_stream(cancel_requests=bool(options.cancel_after))
    milliseconds = [round(1000 * each, 1) for each in (times[0], times[-1])]
    passage = found.as_numpy("passage")[0].decode()
    print("\n" + json.dumps({"passage": passage, "pieces": len(times), "ms": milliseconds}))


if __name__ == "__main__":
    main()

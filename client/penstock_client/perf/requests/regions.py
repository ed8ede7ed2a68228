"""Regions of system shared memory with the inputs of a load, and with room for its outputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from penstock_client.perf.errors import PerfError
from penstock_client.perf.requests.kserve import Form, Place
from penstock_client.perf.requests.tensors import Step
from penstock_client.perf.server import ModelInfo, Server

_FOLDER = Path("/dev/shm")
_ALIGNMENT = 64
_numbers = count()


@contextmanager
def shared(
    server: Server, model: ModelInfo, steps: Sequence[Step], form: Form, output_size: int
) -> Iterator[Form]:
    """The form of requests whose tensors are in shared memory, for as long as this is open.

    Outputs have room for `output_size` bytes each. All requests write to the same place: nobody
    looks at what is there.
    """
    number = f"{os.getpid()}_{next(_numbers)}"  # there may be several at a time
    inputs, outputs = (f"penstock_perf_{number}_{name}" for name in ("inputs", "outputs"))
    content = bytearray()
    places = [_placed(step, inputs, content) for step in steps]
    names = [each.name for each in model.outputs]
    output_places = {
        name: Place(outputs, output_size, number * output_size) for number, name in enumerate(names)
    }
    with (
        _registered(server, inputs, bytes(content)),
        _registered(server, outputs, bytes(output_size * len(names))),
    ):
        yield replace(form, places=places, output_places=output_places)


def _placed(step: Step, region: str, content: bytearray) -> dict[str, Place]:
    places = {}
    for name, tensor in step.items():
        content.extend(bytes(-len(content) % _ALIGNMENT))
        data = bytes(tensor.buffer)
        places[name] = Place(region, len(data), len(content))
        content += data
    return places


@contextmanager
def _registered(server: Server, name: str, content: bytes) -> Iterator[None]:
    file = _FOLDER / name
    file.write_bytes(content or b"\0")
    try:
        server.register(name, f"/{name}", file.stat().st_size)
        try:
            yield
        finally:
            with suppress(PerfError):  # the server may be gone, which its load has told
                server.unregister(name)
    finally:
        file.unlink()

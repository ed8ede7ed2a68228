"""Tensors as JSON: how fast they are decoded and encoded, and how long other threads wait for it.

    python -m loadtest.scenarios.json_tensors --rounds 3 --json json_tensors.json

The forms are the gateway's own, one call of the standard library, and orjson and msgspec where they
are installed. Each decodes a request body with one tensor into an array, and encodes an array into
text: at once, or, where the gateway encodes, in steps on the event loop; large bodies it decodes in
another process, which holds nobody up. "held" is the longest time between two turns of an event
loop that wants one each millisecond. All times are CPU times of the process, so that a busy machine
does not count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from loadtest.report import Row, arguments, median_rows, show
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.json.tensors import tensor_from_json, tensor_to_text
from penstock.gateway.json.text import parse_tensors

_SIZES = (16, 10_000, 1_000_000, 10_000_000)
_ENOUGH_SECONDS = 0.2
_TICK_SECONDS = 0.001

Decoder = Callable[[bytes, DataType], object]
Encoder = Callable[[np.ndarray[Any, Any]], Awaitable[object]]


def main() -> None:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--datatype", choices=["FP32", "INT64"], default="FP32")
    parser.add_argument("--sizes", type=int, nargs="+", default=_SIZES, help="numbers in a tensor")
    options = parser.parse_args()
    datatype = DataType(options.datatype)
    rows = median_rows(options.rounds, lambda: _rows(options.sizes, datatype))
    show(f"{datatype} tensors as JSON, by the count of their numbers", rows, options.json)


def _rows(sizes: list[int], datatype: DataType) -> list[Row]:
    rows = []
    for size in sizes:
        values = _values(size, datatype)
        body = json.dumps({"inputs": [_input(values, datatype)]}, separators=(",", ":")).encode()
        decoders = {name: _decoding(each, body, datatype) for name, each in _decoders().items()}
        rows.append(_row(f"decode {size}", decoders))
        encoders = {name: _encoding(each, values) for name, each in _encoders().items()}
        rows.append(_row(f"encode {size}", encoders))
    return rows


def _values(size: int, datatype: DataType) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(0)
    if datatype is DataType.FP32:
        return random.standard_normal(size, np.float32)
    return random.integers(-(1 << 40), 1 << 40, size)


def _input(values: np.ndarray[Any, Any], datatype: DataType) -> dict[str, Any]:
    shape = list(values.shape)
    return {"name": "IN", "shape": shape, "datatype": str(datatype), "data": values.tolist()}


def _row(label: str, forms: dict[str, Callable[[], Awaitable[object]]]) -> Row:
    """Milliseconds of each form, the longest it holds others up, and how it compares with ours."""
    times = {name: asyncio.run(_milliseconds(form)) for name, form in forms.items()}
    held = {name: asyncio.run(_longest_held(form)) for name, form in forms.items()}
    row: dict[str, float | str] = {"what": label}
    row |= {f"{name} ms": times[name] for name in forms}
    row |= {f"{name}/ours": times[name] / times["ours"] for name in forms if name != "ours"}
    return row | {f"{name} held ms": held[name] for name in forms}


async def _milliseconds(form: Callable[[], Awaitable[object]]) -> float:
    count, start = 0, time.process_time()
    while (elapsed := time.process_time() - start) < _ENOUGH_SECONDS:
        await form()
        count += 1
    return elapsed / count * 1e3


async def _longest_held(form: Callable[[], Awaitable[object]]) -> float:
    longest, last = 0.0, time.process_time()

    def turn() -> None:
        nonlocal longest, last
        now = time.process_time()
        longest, last = max(longest, now - last), now

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            turn()

    ticking = asyncio.create_task(tick())
    await form()
    await asyncio.sleep(_TICK_SECONDS)
    turn()
    ticking.cancel()
    return longest * 1e3


def _decoding(decode: Decoder, body: bytes, datatype: DataType) -> Callable[[], Awaitable[object]]:
    """In one call, which is the gateway's way too; it has another process call for large bodies."""

    async def run() -> object:
        return decode(body, datatype)

    return run


def _encoding(encode: Encoder, values: np.ndarray[Any, Any]) -> Callable[[], Awaitable[object]]:
    async def run() -> object:
        return await encode(values)

    return run


def _decoders() -> dict[str, Decoder]:
    forms: dict[str, Decoder] = {"ours": _decode, "stdlib": _decode_by(json.loads)}
    if find_spec("orjson"):
        forms["orjson"] = _decode_by(import_module("orjson").loads)
    if find_spec("msgspec"):
        forms["msgspec"] = _decode_by(import_module("msgspec").json.decode)
    return forms


def _decode(body: bytes, datatype: DataType) -> object:
    read = parse_tensors(body)["inputs"][0]
    (size,) = read["shape"]
    return tensor_from_json("IN", datatype, [size], read["data"], size).numpy()


def _decode_by(loads: Callable[[bytes], Any]) -> Decoder:
    def decode(body: bytes, datatype: DataType) -> object:
        return np.array(loads(body)["inputs"][0]["data"], datatype.numpy)

    return decode


def _encoders() -> dict[str, Encoder]:
    forms = {"ours": _encode, "stdlib": _encode_by(lambda values: json.dumps(values.tolist()))}
    if find_spec("orjson"):
        orjson = import_module("orjson")
        # Its own form for 32 bits is shorter than that of the protocol, which is of 64 bits.
        forms["orjson"] = _encode_by(
            lambda values: orjson.dumps(
                values.astype(np.float64) if values.dtype == np.float32 else values,
                option=orjson.OPT_SERIALIZE_NUMPY,
            )
        )
    if find_spec("msgspec"):
        encode = import_module("msgspec").json.encode
        forms["msgspec"] = _encode_by(lambda values: encode(values.tolist()))
    return forms


async def _encode(values: np.ndarray[Any, Any]) -> object:
    return await tensor_to_text("OUT", Tensor.from_numpy(values))


def _encode_by(dumps: Callable[[np.ndarray[Any, Any]], object]) -> Encoder:
    async def encode(values: np.ndarray[Any, Any]) -> object:
        if values.size < 1 << 15:
            return dumps(values)
        return await asyncio.to_thread(dumps, values)

    return encode


if __name__ == "__main__":
    main()

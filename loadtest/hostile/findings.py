"""The reproductions of the security review, by the numbers of its findings, at its own sizes."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Thread

from loadtest.hostile.bodies import DECODED, listed, packed
from loadtest.hostile.bodies import send as send_http
from loadtest.hostile.grpc_line import GrpcSending
from loadtest.hostile.http_line import HttpSending
from loadtest.hostile.line import NO_ANSWER
from loadtest.hostile.rogues import ROGUES
from loadtest.hostile.routes import Place
from loadtest.hostile.row import (
    ANSWERED,
    GONE,
    HTTP_ANSWERED,
    HTTP_REFUSED,
    MIB,
    REFUSED,
    Attack,
    Lines,
    Ports,
    Row,
    Sizes,
)
from loadtest.hostile.rpcs import Rpc, compressed, rpcs
from loadtest.hostile.rpcs import send as send_grpc
from loadtest.hostile.wire_bytes import (
    UNKNOWN,
    block,
    filled,
    framed,
    map_entries,
    tensor,
)

_JSON = 60_000_000
_SIMPLE = block(1, b"simple")
_BYTES_CONTENTS, _INT_CONTENTS, _CONTENTS = 8, 2, 5
_RAW, _INPUTS = 7, 5
_FETCH = """
from penstock_backends.language_model import MediaLimits, fetch_media_here
limits = MediaLimits(allowed_hosts=frozenset({{"127.0.0.1"}}), seconds=2.0)
try:
    fetch_media_here("http://127.0.0.1:{port}/x", "image", limits)
except Exception as error:
    print("refused:", error)
"""

Message = Callable[[Sizes], bytes]


def finding_rows() -> Iterator[Row]:
    """Every finding that stops, swells or ends a server."""
    yield from _messages()
    yield from _bodies_in_flight()
    yield from _json()
    yield from _texts()
    yield from _fetches()
    yield from _rogues()


# -- C1 -------------------------------------------------------------------------------------------


def _typed(datatype: str, number: int, contents: bytes, count: int) -> bytes:
    """A request of `simple` with one input, whose values are in a typed field."""
    values = block(_CONTENTS, contents if number == _BYTES_CONTENTS else block(number, contents))
    return _SIMPLE + tensor("INPUT0", datatype, (count,), values)


def _empty_texts(sizes: Sizes) -> bytes:
    count = sizes.of(8 << 20)
    return _typed("BYTES", _BYTES_CONTENTS, block(_BYTES_CONTENTS) * count, count)


def _ones(full: int, sizes: Sizes) -> bytes:
    count = sizes.of(full)
    return _typed("INT32", _INT_CONTENTS, b"\1" * count, count)


def _empty_inputs(sizes: Sizes) -> bytes:
    return _SIMPLE + filled(block(_INPUTS), sizes.of(32 * MIB))


def _parameters(sizes: Sizes) -> bytes:
    return _SIMPLE + map_entries(4, sizes.of(32 * MIB))


def _empty_raw(sizes: Sizes) -> bytes:
    count = sizes.of(16 << 20)
    return _SIMPLE + tensor("INPUT0", "BYTES", (count,)) + block(_RAW) * count


def _map(field: str, full: int, name: str, sizes: Sizes) -> bytes:
    number = _rpc(name).request.fields_by_name[field].number
    return map_entries(number, sizes.of(full * MIB))


def _unknown(sizes: Sizes) -> bytes:
    return block(UNKNOWN, bytes(sizes.of(64 * MIB)))


_C1: list[tuple[str, str, Message, bool]] = [
    ("8 M empty BYTES, gzip", "ModelInfer", _empty_texts, True),
    ("64 M INT32, gzip", "ModelInfer", partial(_ones, 64 << 20), True),
    ("8 M empty BYTES, plain", "ModelInfer", _empty_texts, False),
    ("32 M INT32, plain", "ModelInfer", partial(_ones, 32 << 20), False),
    ("8 M empty BYTES, gzip", "ModelStreamInfer", _empty_texts, True),
    ("64 M INT32, gzip", "ModelStreamInfer", partial(_ones, 64 << 20), True),
    ("16 M empty inputs", "ModelInfer", _empty_inputs, False),
    ("parameters of 32 MB", "ModelInfer", _parameters, False),
    ("16 M empty raw contents", "ModelInfer", _empty_raw, False),
    ("settings of 14 MB", "TraceSetting", partial(_map, "settings", 14, "TraceSetting"), False),
    ("settings of 32 MB", "TraceSetting", partial(_map, "settings", 32, "TraceSetting"), False),
    ("settings of 32 MB", "LogSettings", partial(_map, "settings", 32, "LogSettings"), False),
    (
        "parameters of 32 MB",
        "RepositoryModelLoad",
        partial(_map, "parameters", 32, "RepositoryModelLoad"),
        False,
    ),
    ("64 MB of unknown fields, gzip", "SystemSharedMemoryStatus", _unknown, True),
]


def _rpc(name: str) -> Rpc:
    return next(one for one in rpcs() if one.name == name)


def _message(name: str, make: Message, squeeze: bool, sizes: Sizes) -> Lines:
    message = make(sizes)
    if squeeze:
        return send_grpc(_rpc(name), compressed(message))
    return send_grpc(_rpc(name), GrpcSending(framed(message)))


def _messages() -> Iterator[Row]:
    for what, name, make, squeeze in _C1:
        yield Row(f"C1 {name}  {what}", partial(_message, name, make, squeeze), ANSWERED)
    settings = partial(_map, "settings", 16, "TraceSetting")
    yield Row(
        "C1 TraceSetting  settings of 16 MB, without the header that it needs",
        partial(_message, "TraceSetting", settings, False),
        frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"}),
        options=("--grpc-restricted-protocol=trace:key=secret",),
    )


# -- H3 -------------------------------------------------------------------------------------------


def _unfinished_bodies(sizes: Sizes) -> Attack:
    size = sizes.of(_JSON)
    body = bytes(b"[" + b" " * (size - size // 60))
    sending = HttpSending(body, length=size, patience=1.0, connections=12)
    return send_http(Place("http", "POST", "/v2/models/simple/infer"), sending)


def _unfinished_messages(name: str, sizes: Sizes) -> Attack:
    size = sizes.of(_JSON)
    message = framed(block(UNKNOWN, bytes(size)))[: size - size // 60]
    return send_grpc(_rpc(name), GrpcSending(message, calls=12, patience=1.0))


def _bodies_in_flight() -> Iterator[Row]:
    yield Row("H3 HTTP  12 bodies of 59 of 60 MB", _unfinished_bodies, HTTP_REFUSED | GONE)
    for name in ("ModelInfer", "ServerLive"):
        what = f"H3 {name}  12 messages of 59 of 60 MB"
        yield Row(what, partial(_unfinished_messages, name), REFUSED | GONE)


# -- H2, M4, M5 -----------------------------------------------------------------------------------


def _posted(path: str, make: Message, squeeze: bool, sizes: Sizes) -> Lines:
    body = make(sizes)
    place = Place("http", "POST", path)
    if squeeze:
        return send_http(place, packed(body))
    return send_http(place, HttpSending(body))


def _list(item: bytes, sizes: Sizes) -> bytes:
    return listed(item, sizes.of(_JSON))


def _objects(sizes: Sizes) -> bytes:
    return b"[" + filled(b"{},", sizes.of(_JSON))[:-1] + b"]"


def _prompt(model: bytes, text: bytes, sizes: Sizes) -> bytes:
    return b'{"model":"%b","prompt":"%b"}' % (model, filled(text, sizes.of(_JSON)))


def _escaped_prompt(model: bytes, sizes: Sizes) -> bytes:
    return _prompt(model, b"x\\u0061", sizes)


def _doubled_model(sizes: Sizes) -> bytes:
    return b'{"model":"tiny_llm",' + _prompt(b"tiny_llm", b"x", sizes)[1:]


def _json() -> Iterator[Row]:
    engine, infer = "/v2/models/ANY/engine/x", "/v2/models/simple/infer"
    completions = "/v1/completions"
    table: list[tuple[str, str, Message, bool, str]] = [
        ("H2 engine  60 MB of objects", engine, partial(_list, b"{}"), False, "simple"),
        ("H2 engine  60 MB of numbers", engine, partial(_list, b"1"), False, "simple"),
        ("M4 prompt  60 MB", completions, partial(_prompt, b"tiny_llm", b"x"), False, "simple"),
        (
            "M4 prompt  60 MB with an escape",
            completions,
            partial(_escaped_prompt, b"tiny_llm"),
            False,
            "simple",
        ),
        (
            "M4 prompt  60 MB with an escape, to no model",
            completions,
            partial(_escaped_prompt, b"none"),
            False,
            "simple",
        ),
        ("M4 prompt  60 MB with a doubled model", completions, _doubled_model, False, "simple"),
        ("M5 objects  61 KB of gzip, beside 1.5 MB of JSON", infer, _objects, True, "json"),
        ("M5 objects  60 MB, beside 1.5 MB of JSON", infer, _objects, False, "json"),
        ("M5 objects  61 KB of gzip", infer, _objects, True, "simple"),
    ]
    for name, path, make, squeeze, beside in table:
        prepare = partial(_posted, path, make, squeeze)
        # Large JSON lies there twice while it is decoded, and large texts take turns.
        stall, copied = 100.0 if beside == "json" else 50.0, DECODED["gzip bomb"]
        copied += 0.0 if squeeze else _JSON / MIB
        yield Row(name, prepare, HTTP_ANSWERED, stall, copied, beside)


# -- H4 -------------------------------------------------------------------------------------------


def _text(full: int, unit: bytes, sizes: Sizes) -> Lines:
    text = filled(unit, sizes.of(full))
    element = len(text).to_bytes(4, "little") + text
    raw = block(1, b"minilm") + tensor("TEXT", "BYTES", (1, 1)) + block(_RAW, element)
    return send_grpc(_rpc("ModelInfer"), GrpcSending(framed(raw)))


def _texts() -> Iterator[Row]:
    for megabytes in (8, 30):
        for what, unit in (("words", b"some text "), ("one word", b"x")):
            name = f"H4 minilm  a text of {megabytes} MB, {what}"
            prepare = partial(_text, megabytes * 1_000_000, unit)
            yield Row(name, prepare, ANSWERED, stall=100, beside="minilm")


# -- M9 -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Has the server's function fetch from a host whose head never ends."""

    size: int = 0

    def run(self, ports: Ports, seconds: float) -> Sequence[str]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            Thread(target=_drip, args=(listener, seconds), daemon=True).start()
            code = _FETCH.format(port=listener.getsockname()[1])
            command = [ports.python, "-c", code]
            try:
                done = subprocess.run(
                    command, check=False, capture_output=True, text=True, timeout=seconds
                )
            except subprocess.TimeoutExpired:
                return [NO_ANSWER]
        return [done.stdout.strip() or done.stderr.strip()[-200:]]


def _drip(listener: socket.socket, seconds: float) -> None:
    end = time.monotonic() + seconds
    with suppress(OSError):
        connection, _ = listener.accept()
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while time.monotonic() < end:
            connection.sendall(b"x")
            time.sleep(0.5)


def _fetches() -> Iterator[Row]:
    name = "M9 media  a head that drips, with a limit of 2 s"
    yield Row(name, lambda _: _Fetch(), frozenset({"refused"}), stall=inf, seconds=6.0)


# -- M3 -------------------------------------------------------------------------------------------


def _ask(model: str, _: Sizes) -> Lines:
    message = block(1, model.encode()) + tensor("IN", "INT32", (1,)) + block(_RAW, bytes(4))
    return send_grpc(_rpc("ModelInfer"), GrpcSending(framed(message)))


def _rogues() -> Iterator[Row]:
    for model in ROGUES:
        name = f"M3 model  {model.replace('_', ' ')}"
        options = ("--model-repository={rogues}",)
        yield Row(name, partial(_ask, model), ANSWERED, options=options)

"""Hostile rows for every RPC of every service: each kind of message for each of them.

The RPCs are those of the messages' descriptors, so that one that is added joins by itself.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from loadtest.hostile.grpc_line import GrpcLine, GrpcSending
from loadtest.hostile.row import (
    ANSWERED,
    GONE,
    MIB,
    MOST_UNPACKED,
    REFUSED,
    Lines,
    Ports,
    Row,
    Sizes,
)
from loadtest.hostile.wire_bytes import (
    GROUP,
    UNKNOWN,
    VARINT,
    announced,
    block,
    filled,
    framed,
    map_entries,
    members,
    squeezed,
    tag,
)
from penstock import protocol

_PLAIN = 8 * MIB
_UNPACKED = 64 * MIB
_MANY_CALLS = 64
_MOST_CALLS = 1000  # about what a connection may have at once
_LARGEST = (1 << 31) - 1
_DEPTH = 3  # of fields within fields
_LARGE = ("ModelInfer", "ModelStreamInfer", "RepositoryModelLoad")  # what holds tensors or files
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_FIXED = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_FIXED64: 8,
}


@dataclass(frozen=True, slots=True)
class Rpc:
    """A method of a service, with the descriptor of its requests."""

    service: str
    name: str
    request: Any
    client_streaming: bool
    server_streaming: bool

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    @property
    def label(self) -> str:
        """The service by the last of its names that says something, and the method."""
        service = self.service.removeprefix("inference.").removeprefix("grpc.")
        return self.name if service == "GRPCInferenceService" else f"{service}/{self.name}"

    @property
    def endless(self) -> bool:
        """Whether the server ends the stream of responses only with the client."""
        return self.server_streaming and not self.client_streaming


_OF_OTHERS = ("sglang_runtime_pb2", "vllm_inference_pb2")
"""Messages of services that a Penstock asks, and does not serve."""


def rpcs() -> Iterator[Rpc]:
    """Every method of every service that is served."""
    for module in pkgutil.iter_modules(protocol.__path__):
        if module.name.endswith("_pb2") and module.name not in _OF_OTHERS:
            found = import_module(f"{protocol.__name__}.{module.name}").DESCRIPTOR
            for service in found.services_by_name.values():
                for method in service.methods:
                    yield Rpc(
                        service.full_name,
                        method.name,
                        method.input_type,
                        method.client_streaming,
                        method.server_streaming,
                    )


def send(rpc: Rpc, sending: GrpcSending, connections: int = 1) -> Lines:
    """The attack that sends this to a method."""

    def connect(ports: Ports) -> list[GrpcLine]:
        return [
            GrpcLine(ports["grpc"], rpc.path, sending, first=rpc.endless)
            for _ in range(connections)
        ]

    unpacked = min(sending.unpacked, MOST_UNPACKED) if rpc.name in _LARGE else 0
    return Lines((len(sending.body) + unpacked) * sending.calls * connections, connect)


def compressed(message: bytes) -> GrpcSending:
    """A message by gzip."""
    return GrpcSending(framed(squeezed(message), 1), "gzip", len(message))


# -- kinds ----------------------------------------------------------------------------------------

Make = Callable[[Rpc, Sizes], GrpcSending]


def _unknown(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(block(UNKNOWN, bytes(sizes.of(_PLAIN)))))


def _bomb(_: Rpc, sizes: Sizes) -> GrpcSending:
    message = block(UNKNOWN, bytes(sizes.of(_UNPACKED)))
    return compressed(message)


def _many_unknown(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(filled(tag(UNKNOWN, VARINT) + b"\1", sizes.of(_PLAIN))))


def _deep(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(filled(tag(UNKNOWN, GROUP), sizes.of(_PLAIN))))


def _doubled(rpc: Rpc, sizes: Sizes) -> GrpcSending:
    """The first field that is no message, again and again: the last one counts."""
    known = (one for one in rpc.request.fields if not one.message_type)
    field = next(known, None)
    unit = tag(UNKNOWN, VARINT) + b"\1" if field is None else _element(field, b"x")
    return GrpcSending(framed(filled(unit, sizes.of(_PLAIN))))


def _slow(_: Rpc, __: Sizes) -> GrpcSending:
    return GrpcSending(announced(1000, bytes(20)), pause=0.02, patience=0.2)


def _at_once(_: Rpc, sizes: Sizes) -> GrpcSending:
    size = sizes.of(_PLAIN) // _MANY_CALLS
    return GrpcSending(framed(block(UNKNOWN, bytes(size))), calls=_MANY_CALLS)


def _thousand(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(b""), calls=sizes.of(_MOST_CALLS))


def _thousand_left(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(b""), calls=sizes.of(_MOST_CALLS), patience=0.2)


def _large_length(_: Rpc, __: Sizes) -> GrpcSending:
    return GrpcSending(announced(_LARGEST, bytes(100)), patience=0.3)


def _larger_length(_: Rpc, __: Sizes) -> GrpcSending:
    return GrpcSending(announced(0xFFFFFFFF, bytes(100)), patience=0.3)


def _many_lengths(_: Rpc, __: Sizes) -> GrpcSending:
    body = announced(_LARGEST, bytes(100))
    return GrpcSending(body, calls=_MANY_CALLS, patience=0.3)


def _garbage(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(b"\x1f\x8b" + bytes(sizes.of(MIB)), 1), "gzip")


def _unnamed(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(squeezed(bytes(sizes.of(MIB))), 1))


def _encoding(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(bytes(sizes.of(MIB)), 1), "brotli")


def _members(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(members(sizes.of(100_000)), 1), "gzip")


def _empty(_: Rpc, __: Sizes) -> GrpcSending:
    return GrpcSending(b"")


def _truncated(_: Rpc, __: Sizes) -> GrpcSending:
    return GrpcSending(announced(100, bytes(50)))


def _cut_field(_: Rpc, sizes: Sizes) -> GrpcSending:
    field = block(1, bytes(sizes.of(MIB)))
    return GrpcSending(framed(field[: len(field) // 2]))


def _doubled_message(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(block(UNKNOWN, bytes(sizes.of(MIB)))) * 2)


def _small_messages(_: Rpc, sizes: Sizes) -> GrpcSending:
    return GrpcSending(framed(b"") * sizes.of(200_000))


_LEAVING = REFUSED | GONE
KINDS: dict[str, tuple[Make, frozenset[str]]] = {
    "large unknown field": (_unknown, ANSWERED),
    "gzip bomb": (_bomb, ANSWERED),
    "many unknown fields": (_many_unknown, ANSWERED),
    "deep groups": (_deep, REFUSED),
    "doubled fields": (_doubled, ANSWERED),
    "slow": (_slow, _LEAVING),
    "many at once": (_at_once, ANSWERED),
    "a thousand at once": (_thousand, ANSWERED),
    "a thousand left": (_thousand_left, ANSWERED | GONE),
    "2 GiB announced": (_large_length, _LEAVING),
    "4 GiB announced": (_larger_length, _LEAVING),
    "2 GiB announced by many": (_many_lengths, _LEAVING),
    "compressed garbage": (_garbage, REFUSED),
    "compressed by nothing": (_unnamed, REFUSED),
    "unknown compression": (_encoding, REFUSED),
    "many members of gzip": (_members, ANSWERED),
    "empty": (_empty, ANSWERED),
    "truncated": (_truncated, REFUSED),
    "cut within a field": (_cut_field, ANSWERED),
    "doubled messages": (_doubled_message, ANSWERED),
    "many small messages": (_small_messages, ANSWERED),
}
"""What is sent to each RPC, and how it may end."""


# -- elements -------------------------------------------------------------------------------------


def elements(request: Any, depth: int = _DEPTH) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """The repeated fields of a message, and of those within it: what fills each with so much."""
    for field in request.fields:
        if _repeated(field):
            yield field.name, partial(_many, field)
        inner = field.message_type
        if inner is not None and depth > 1 and not _is_map(field):
            for name, fill in elements(inner, depth - 1):
                yield f"{field.name}.{name}", _within(field.number, fill)


def _within(number: int, fill: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda size: block(number, fill(size))


def _many(field: Any, size: int) -> bytes:
    if _is_map(field):
        return map_entries(field.number, size)
    if field.message_type or field.type in _TEXTS:
        return filled(block(field.number), size)
    return block(field.number, filled(b"\1" * _FIXED.get(field.type, 1), size))


def _element(field: Any, text: bytes) -> bytes:
    """A field with a small value."""
    if field.type in _TEXTS:
        return block(field.number, text)
    if field.type in _FIXED or _repeated(field):
        return block(field.number, b"\1" * _FIXED.get(field.type, 1))
    return tag(field.number, VARINT) + b"\1"


def _repeated(field: Any) -> bool:
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _filled_with(
    fill: Callable[[int], bytes], squeeze: bool, rpc: Rpc, sizes: Sizes
) -> GrpcSending:
    if not squeeze:
        return GrpcSending(framed(fill(sizes.of(_PLAIN))))
    return compressed(fill(sizes.of(2 * _PLAIN)))


def kinds(rpc: Rpc) -> Iterator[tuple[str, Make, frozenset[str]]]:
    """What is sent to an RPC: each kind, and each repeated field, plain and compressed."""
    for kind, (make, expected) in KINDS.items():
        yield kind, make, expected
    for field, fill in elements(rpc.request):
        yield f"many {field}", partial(_filled_with, fill, False), ANSWERED
        yield f"many {field}, gzip", partial(_filled_with, fill, True), ANSWERED


def _prepare(rpc: Rpc, make: Make, sizes: Sizes) -> Lines:
    return send(rpc, make(rpc, sizes))


def rpc_rows() -> Iterator[Row]:
    """Every kind for every RPC."""
    return chain.from_iterable(
        (
            Row(f"{rpc.label}  {kind}", partial(_prepare, rpc, make), expected)
            for kind, make, expected in kinds(rpc)
        )
        for rpc in rpcs()
    )

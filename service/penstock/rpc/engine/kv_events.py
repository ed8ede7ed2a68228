"""`KvEvents`: what engines publish of their KV caches (ZeroMQ), for routers that follow it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from typing import Any, Final

import msgspec

from penstock.core.errors import DataLossError, UnavailableError, UnsupportedError
from penstock.core.log.log_throttle import LogThrottle
from penstock.protocol import engine_common_pb2 as pb

logger = logging.getLogger(__name__)

_NOT_INSTALLED: Final = (
    "KV events need a package that is not installed: pip install 'penstock[engine-rpc]'"
)
_FRAMES: Final = 3
_BITS: Final = 64
_TIERS: Final = {
    "GPU": pb.KV_CACHE_TIER_DEVICE,
    "CPU": pb.KV_CACHE_TIER_HOST,
    "CPU_PINNED": pb.KV_CACHE_TIER_HOST,
    "DISK": pb.KV_CACHE_TIER_DISK,
    "STORAGE": pb.KV_CACHE_TIER_DISK,
    "EXTERNAL": pb.KV_CACHE_TIER_EXTERNAL,
}
_STORED: Final = (
    *("type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"),
    *("medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"),
)
_REMOVED: Final = ("type", "block_hashes", "medium", "group_idx")
_PREFIXES: Final = ("full_attention", "mla_attention", "sink_full_attention")
"""Kinds of caches whose blocks are beginnings of prompts; a hybrid model has others besides."""
_BATCH: Final = ("ts", "events", "data_parallel_rank")
"""Names of fields in their order, for engines that send only values."""
_UNREADABLE: Final = (AttributeError, LookupError, TypeError, ValueError)
_LEFT_OUT: Final = LogThrottle()


class KvEvents:
    """The publishers of one engine, by their numbers; each numbers its batches by itself."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        if not addresses:
            raise UnsupportedError(
                "the model's engine publishes no KV events: 'kv_events_config' in its model.json"
                " has it do so (publisher zmq)"
            )
        self._addresses = addresses
        try:
            self._zmq = import_module("zmq.asyncio")
        except ImportError as error:
            raise UnsupportedError(_NOT_INSTALLED) from error

    async def follow(self, begin: Callable[[], Any], put: Callable[[pb.KvEventBatch], Any]) -> None:
        """Await `begin`, and then `put` with every batch from now on, until this is cancelled.

        Raises `DataLossError` where a batch is missing, as a reader that is too slow has it, or the
        numbers begin anew, and `UnavailableError` where a publisher has gone or sends what is no
        batch. An event that cannot be read is left out.
        """
        with ExitStack() as stack:
            sockets = [self._socket(stack, address) for address in self._addresses.values()]
            await begin()
            async with asyncio.TaskGroup() as tasks:
                turn = asyncio.Lock()  # of the readers, one of which writes at a time
                for number, (socket, monitor) in zip(self._addresses, sockets, strict=True):
                    tasks.create_task(self._read(int(number), socket, put, turn))
                    tasks.create_task(_lost(monitor))

    def _socket(self, stack: ExitStack, address: str) -> tuple[Any, Any]:
        """A socket that reads what is published, and one that tells when the publisher goes."""
        zmq = import_module("zmq")
        socket = stack.enter_context(closing(self._zmq.Context.instance().socket(zmq.SUB)))
        socket.linger = 0
        socket.subscribe(b"")
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        stack.callback(monitor.close, linger=0)
        stack.callback(socket.disable_monitor)
        socket.connect(address)
        return socket, monitor

    async def _read(
        self, rank: int, socket: Any, put: Callable[[pb.KvEventBatch], Any], turn: asyncio.Lock
    ) -> None:
        following: int | None = None
        while True:
            frames = await socket.recv_multipart()
            if len(frames) != _FRAMES:
                raise UnavailableError("the engine has published what is no batch of KV events")
            number = int.from_bytes(frames[1], "big")
            if following is not None and number != following:
                raise DataLossError(
                    f"the engine's KV events go on with number {number}, not {following}"
                )
            following = number + 1
            try:
                batch = batch_of(msgspec.msgpack.decode(frames[2]), number, rank)
            except _UNREADABLE as error:
                raise UnavailableError(f"the engine's KV events cannot be read: {error}") from error
            async with turn:
                await put(batch)


async def _lost(monitor: Any) -> None:
    """Wait until a publisher has gone: what its cache has had is worth nothing then."""
    await monitor.recv_multipart()
    raise UnavailableError("the engine that published KV events has gone")


def batch_of(given: Any, number: int, rank: int) -> pb.KvEventBatch:
    """A batch as vLLM packs it: an object, or in older releases a list of its values."""
    fields = _named(given, _BATCH)
    own = fields.get("data_parallel_rank")
    batch = pb.KvEventBatch(
        sequence_number=number, timestamp=fields["ts"], dp_rank=rank if own is None else own
    )
    for count, event in enumerate(fields["events"]):
        try:
            batch.events.extend(_events(event, count))
        except _UNREADABLE as error:
            if _LEFT_OUT.add(time.monotonic()):
                left_out = "events of an engine's KV cache are left out, %d so far: %s"
                logger.warning(left_out, _LEFT_OUT.count, error)
    return batch


def _events(given: Any, number: int) -> Iterator[pb.KvCacheEvent]:
    """The event, unless it is of a kind that nobody knows yet, or of no cache of prefixes."""
    kind = given.get("type") if isinstance(given, Mapping) else given[0]
    if kind == "BlockStored":
        fields = _named(given, _STORED)
        if (fields.get("kv_cache_spec_kind") or _PREFIXES[0]) in _PREFIXES:
            yield pb.KvCacheEvent(event_id=number, stored=_stored(fields))
    elif kind == "BlockRemoved":
        fields = _named(given, _REMOVED)
        removed = pb.KvBlocksRemoved(block_hashes=map(_hash, fields["block_hashes"]))
        _place(removed, fields)
        yield pb.KvCacheEvent(event_id=number, removed=removed)
    elif kind == "AllBlocksCleared":
        yield pb.KvCacheEvent(event_id=number, cleared=pb.KvCacheCleared())


def _stored(fields: Mapping[str, Any]) -> pb.KvBlocksStored:
    stored, size = pb.KvBlocksStored(), int(fields["block_size"])
    tokens = [_token(one) for one in fields["token_ids"]]
    if len(tokens) != size * len(fields["block_hashes"]):
        raise ValueError(f"{len(tokens)} tokens are no {len(fields['block_hashes'])} blocks")
    for at, block in enumerate(fields["block_hashes"]):
        stored.blocks.add(
            block_hash=_hash(block),
            token_ids=tokens[at * size : (at + 1) * size],
            block_size=size,
            lora_id=fields.get("lora_id"),
        )
    if (parent := fields.get("parent_block_hash")) is not None:
        stored.parent_block_hash = _hash(parent)
    if fields.get("lora_name"):
        stored.lora_name = fields["lora_name"]
    _place(stored, fields)
    return stored


def _token(given: Any) -> int:
    """A token, which comes with its next one where the engine looks ahead."""
    return int(given[0] if isinstance(given, list | tuple) else given)


def _place(event: pb.KvBlocksStored | pb.KvBlocksRemoved, fields: Mapping[str, Any]) -> None:
    """Where the blocks are."""
    if (medium := fields.get("medium")) is not None:
        event.medium = medium
        event.tier = _TIERS.get(medium, pb.KV_CACHE_TIER_UNSPECIFIED)
    if (group := fields.get("group_idx")) is not None:
        event.group_idx = group


def _hash(given: int | bytes) -> int:
    """A block's hash as a signed number of 64 bits: its last ones."""
    number = int.from_bytes(given, "big") if isinstance(given, bytes) else given
    number &= (1 << _BITS) - 1
    return number - (1 << _BITS) if number >> (_BITS - 1) else number


def _named(given: Any, names: Sequence[str]) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else dict(zip(names, given, strict=False))

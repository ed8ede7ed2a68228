"""`KvEvents`: what engines publish of their KV caches (ZeroMQ), for routers that follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from typing import Any, Final

import msgspec

from penstock.core.errors import UnavailableError, UnsupportedError
from penstock.protocol import engine_common_pb2 as pb

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
    *("medium", "lora_name", "extra_keys", "group_idx"),
)
_REMOVED: Final = ("type", "block_hashes", "medium", "group_idx")
_BATCH: Final = ("ts", "events", "data_parallel_rank")
"""Names of fields in their order, for engines that send only values."""


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

        A reader that is too slow loses batches, as their numbers show. Raises `UnavailableError`
        for what is no batch.
        """
        with ExitStack() as stack:
            sockets = [self._socket(stack, address) for address in self._addresses.values()]
            await begin()
            async with asyncio.TaskGroup() as tasks:
                turn = asyncio.Lock()  # of the readers, one of which writes at a time
                for number, socket in zip(self._addresses, sockets, strict=True):
                    tasks.create_task(self._read(int(number), socket, put, turn))

    def _socket(self, stack: ExitStack, address: str) -> Any:
        context = self._zmq.Context.instance()
        socket = stack.enter_context(closing(context.socket(import_module("zmq").SUB)))
        socket.linger = 0
        socket.subscribe(b"")
        socket.connect(address)
        return socket

    async def _read(
        self, rank: int, socket: Any, put: Callable[[pb.KvEventBatch], Any], turn: asyncio.Lock
    ) -> None:
        while True:
            frames = await socket.recv_multipart()
            if len(frames) != _FRAMES:
                raise UnavailableError("the engine has published what is no batch of KV events")
            try:
                number = int.from_bytes(frames[1], "big")
                batch = batch_of(msgspec.msgpack.decode(frames[2]), number, rank)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise UnavailableError(f"the engine's KV events cannot be read: {error}") from error
            async with turn:
                await put(batch)


def batch_of(given: Any, number: int, rank: int) -> pb.KvEventBatch:
    """A batch as vLLM packs it: an object, or in older releases a list of its values."""
    fields = _named(given, _BATCH)
    own = fields.get("data_parallel_rank")
    batch = pb.KvEventBatch(
        sequence_number=number, timestamp=fields["ts"], dp_rank=rank if own is None else own
    )
    for count, event in enumerate(fields["events"]):
        batch.events.extend(_events(event, count))
    return batch


def _events(given: Any, number: int) -> Iterator[pb.KvCacheEvent]:
    """The event, unless it is of a kind that nobody knows yet."""
    kind = given.get("type") if isinstance(given, Mapping) else given[0]
    if kind == "BlockStored":
        yield pb.KvCacheEvent(event_id=number, stored=_stored(_named(given, _STORED)))
    elif kind == "BlockRemoved":
        fields = _named(given, _REMOVED)
        removed = pb.KvBlocksRemoved(block_hashes=map(_hash, fields["block_hashes"]))
        _place(removed, fields)
        yield pb.KvCacheEvent(event_id=number, removed=removed)
    elif kind == "AllBlocksCleared":
        yield pb.KvCacheEvent(event_id=number, cleared=pb.KvCacheCleared())


def _stored(fields: Mapping[str, Any]) -> pb.KvBlocksStored:
    stored, size, tokens = pb.KvBlocksStored(), int(fields["block_size"]), fields["token_ids"]
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

"""Limits of one connection: streams, windows, buffer sizes and frame rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one connection. Sizes are in bytes, rates per second.

    A connection without streams holds a few KiB. Beyond that it holds at most: one incomplete
    message per stream (up to `max_message_size`, grown as it arrives); complete messages that its
    method has not read yet, up to `stream_window` per stream; one queued response message per
    stream, and the send buffer. Frames that do no work (`idle_*`) and streams that the client
    resets (`reset_*`) take tokens from a bucket; a client that empties it is disconnected with
    ENHANCE_YOUR_CALM. Streams that were reset while their handlers still run count against
    `max_lingering_streams` only.

    `max_control_size` bounds messages that carry no tensors or files. A compressed message may
    unpack to `small_inflated_size` bytes, and beyond that to `max_inflation` times its own size:
    who wants more memory of the server has to send more.
    """

    max_concurrent_streams: int = 1024
    max_lingering_streams: int = 2048
    max_frame_size: int = 1 << 20
    max_header_list_size: int = 64 << 10
    header_table_size: int = 4096
    max_continuations: int = 32
    stream_window: int = 4 << 20
    connection_window: int = 16 << 20
    max_message_size: int = (1 << 31) - 1
    max_control_size: int = 1 << 20
    max_inflated_size: int = 512 << 20
    max_inflation: int = 64
    small_inflated_size: int = 64 << 20
    max_unsent_control: int = 256 << 10
    remembered_resets: int = 1000
    idle_burst: int = 1000
    idle_rate: float = 200.0
    reset_burst: int = 10_000
    reset_rate: float = 1000.0

    def largest(self, *, control: bool) -> int:
        """Bytes of the largest message; `control` is for those without tensors or files."""
        return (
            min(self.max_message_size, self.max_control_size) if control else self.max_message_size
        )

    def most_inflated(self, packed: int, most: int) -> int:
        """Bytes that a message of `packed` bytes may unpack to, where `most` is its limit."""
        return min(
            most, self.max_inflated_size, max(self.small_inflated_size, self.max_inflation * packed)
        )

    @property
    def longest_block(self) -> int:
        """Bytes of the longest header block: no more than of its decoded fields."""
        return self.max_header_list_size

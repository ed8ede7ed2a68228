"""What one connection may have and make us hold; every bound of the protocol in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection. Sizes are in bytes, rates per second.

    A connection without streams holds a few KiB. Beyond that it holds at most: one message in the
    making per stream (`max_message_size`, which grows as it arrives); complete messages that no
    method has taken yet, `stream_window` on each; one message of responses per stream that
    waits, and what is gathered for the next write. Frames that do no work (`idle_*`) and streams
    that clients reset (`reset_*`) are counted against a burst that refills at a rate; who exceeds
    it is asked to calm down, and disconnected. Streams that are gone while somebody still works
    for them do not stand in the way of others, up to `max_lingering_streams`.
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
    max_inflated_size: int = 512 << 20
    max_unsent_control: int = 256 << 10
    remembered_resets: int = 1000
    idle_burst: int = 1000
    idle_rate: float = 200.0
    reset_burst: int = 10_000
    reset_rate: float = 1000.0

    @property
    def longest_block(self) -> int:
        """Header blocks are no longer than the largest list of fields that they can hold."""
        return self.max_header_list_size

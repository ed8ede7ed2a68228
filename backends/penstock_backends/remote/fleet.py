"""`Fleet`: the addresses of a remote model, of which each call gets one, or another."""

from __future__ import annotations

import asyncio
import binascii
import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError

from penstock.backend import UnavailableError, series_name
from penstock.protocol import orca_load_report_pb2 as orca
from penstock_backends.remote.endpoint import Endpoint, Probe
from penstock_backends.remote.grpc_connection import CallStatus
from penstock_backends.remote.standing import least_loaded, preferred

_REPORT = b"endpoint-load-metrics-bin"
_MOST_SEQUENCES = 1 << 16

One = TypeVar("One", bound=Endpoint)


class Fleet(Generic[One]):
    """Picks the least loaded address that is up, and keeps each sequence where it began."""

    def __init__(self, endpoints: Sequence[One]) -> None:
        self.endpoints = endpoints
        self.retries = 0
        self._standings = [one.standing for one in self.endpoints]
        self._turn = count(random.randrange(len(self.endpoints)))
        self._sequences: dict[int | str, One] = {}
        self._loop = asyncio.get_running_loop()
        self._watches: list[asyncio.Task[None]] = []

    # -- health -------------------------------------------------------------------------------

    async def look(self, probe: Probe) -> None:
        """Ask all addresses once, for no longer than a connection may take."""
        looks = [one.look(probe, patient=False) for one in self.endpoints]
        await asyncio.gather(*looks)

    def watch(self, probe: Probe) -> None:
        """Look after all addresses until `close`."""
        self._watches = [self._loop.create_task(one.watch(probe)) for one in self.endpoints]

    def unready(self) -> str:
        """Why no address gets calls; empty if one does."""
        if any(one.up for one in self._standings):
            return ""
        reasons = [f"remote {one.address}: {one.standing.reason}" for one in self.endpoints]
        return "; ".join(reasons[:4]) + ("; ..." if len(reasons) > 4 else "")

    async def close(self) -> None:
        """End the watch, and all connections; calls under way fail."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for endpoint in self.endpoints:
            await endpoint.close()

    # -- calls --------------------------------------------------------------------------------

    def pick(self, sequence: int | str = 0, *, begins: bool = False, prefix: bytes = b"") -> One:
        """The address for a call; raises `UnavailableError` where none is up.

        All calls of a sequence go where its first went, whose state is nowhere else. Calls of equal
        `prefix` go to one address as long as it is not much more loaded than others.
        """
        if sequence and not begins and (known := self._sequences.get(sequence)):
            return known
        if len(self.endpoints) == 1:
            found = self.endpoints[0] if self._standings[0].up else None
        elif prefix:
            order = self._order(prefix)
            found = preferred(self.endpoints, self._standings, self._loop.time(), order)
        else:
            now, first = self._loop.time(), next(self._turn)
            found = least_loaded(self.endpoints, self._standings, now, first)
        if found is None:
            raise UnavailableError(self.unready())
        if sequence:
            self._keep(sequence, found)
        return found

    def _order(self, prefix: bytes) -> list[int]:
        """The places of the addresses, for a prefix: the highest hash of both first (rendezvous).

        So an address that comes or goes moves none but its own.
        """
        hashes = [
            blake2b(prefix, digest_size=8, key=one.name[-64:]).digest() for one in self.endpoints
        ]
        return sorted(range(len(hashes)), key=hashes.__getitem__, reverse=True)

    def forget(self, sequence: int | str) -> None:
        """Note that a sequence has ended."""
        self._sequences.pop(sequence, None)

    def ended(self, endpoint: Endpoint, status: CallStatus) -> None:
        """Note the end of a call, and the load that it reports."""
        endpoint.done()
        standing = endpoint.standing
        if status.code == 0:
            standing.answered()
        else:
            endpoint.failed_calls += 1
            if status.code == 14 and not status.ours:
                standing.refused(status.message, others=self._others_up(endpoint))
        self.note_load(endpoint, status)

    def note_load(self, endpoint: Endpoint, status: CallStatus) -> None:
        """Note the load that an answer reports of its server, if it does."""
        report = status.trailers.get(_REPORT)
        if report is not None:
            endpoint.standing.report(_utilization(report), self._loop.time())

    def _others_up(self, endpoint: Endpoint) -> bool:
        return any(one.standing.up for one in self.endpoints if one is not endpoint)

    def may_retry(self, endpoint: Endpoint, status: CallStatus) -> bool:
        """Whether a call that got no answer may go to another address, or there once more.

        A server that answers UNAVAILABLE is not asked again at once: only another is.
        """
        if status.code != 14 or not any(one.up for one in self._standings):
            return False
        return status.untouched or self._others_up(endpoint)

    def _keep(self, sequence: int | str, endpoint: One) -> None:
        if len(self._sequences) >= _MOST_SEQUENCES:
            del self._sequences[next(iter(self._sequences))]
        self._sequences[sequence] = endpoint

    # -- numbers ------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, float]:
        """Numbers by address, and how many calls went to a second one."""
        numbers: dict[str, float] = {"remote_retries_total": self.retries}
        for endpoint in self.endpoints:
            labels = {"address": str(endpoint.address)}
            standing = endpoint.standing
            for name, value in (
                ("remote_calls_total", endpoint.calls),
                ("remote_failed_calls_total", endpoint.failed_calls),
                ("remote_calls_in_flight", standing.in_flight),
                ("remote_up", standing.up),
            ):
                numbers[series_name(name, **labels)] = float(value)
        return numbers


def _utilization(value: bytes) -> float:
    """The highest fraction that a report of ORCA tells of a server's capacity; NaN for none."""
    try:
        message = orca.OrcaLoadReport.FromString(
            binascii.a2b_base64(value + b"=" * (-len(value) % 4))
        )
    except (DecodeError, binascii.Error):
        return float("nan")
    named = message.named_metrics.get("kv_cache_utilization", 0.0)
    return float(max(message.application_utilization, named, message.cpu_utilization))

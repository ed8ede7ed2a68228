"""`NameLookups`: addresses of hosts, looked up on threads of their own."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

MOST: Final = 64
"""Look-ups at once."""
MOST_OF_A_SITE: Final = 4
"""Look-ups at once of names that end alike: who runs a slow name server keeps no more."""

_SHARED: Final = frozenset({"ac", "co", "com", "edu", "go", "gov", "ne", "net", "or", "org"})
"""Second labels below which countries have owners apart, as in `co.uk`."""

LookUp = Callable[[str, int], Sequence[Any]]
"""As `socket.getaddrinfo`."""


def _look_up(host: str, port: int) -> Sequence[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class NameLookups:
    """Bounded look-ups, which callers leave when their time is over; for several threads.

    A look-up itself cannot be ended: its thread stays until the resolver gives up, and others must
    not be without one meanwhile. Those who ask for the same host share one.
    """

    def __init__(self, look_up: LookUp = _look_up) -> None:
        self._look_up = look_up
        self._free = threading.Condition()
        self._running: dict[tuple[str, int], Future[Sequence[Any]]] = {}
        self._by_site: Counter[str] = Counter()

    def addresses(self, host: str, port: int, seconds: float) -> list[str]:
        """The addresses of a host; raises `TimeoutError`, and what the look-up raises."""
        end = time.monotonic() + seconds
        found = self._begun(host, port, seconds).result(max(0.0, end - time.monotonic()))
        return [str(one[4][0]) for one in found]

    def _begun(self, host: str, port: int, seconds: float) -> Future[Sequence[Any]]:
        """The look-up of a host that runs; where there is none, a new one once there is room."""
        key, site = (host, port), _site(host)
        with self._free:
            if not self._free.wait_for(lambda: key in self._running or self._room(site), seconds):
                raise TimeoutError
            running = self._running.get(key)
            if running is not None:
                return running
            found = self._running[key] = Future()
            self._by_site[site] += 1
        threading.Thread(target=self._run, args=(key, site, found), daemon=True).start()
        return found

    def _room(self, site: str) -> bool:
        return len(self._running) < MOST and self._by_site[site] < MOST_OF_A_SITE

    def _run(self, key: tuple[str, int], site: str, found: Future[Sequence[Any]]) -> None:
        try:
            found.set_result(self._look_up(*key))
        except Exception as error:  # of any kind: it is that of whoever waits
            found.set_exception(error)
        finally:
            with self._free:
                del self._running[key]
                self._by_site[site] -= 1
                if not self._by_site[site]:
                    del self._by_site[site]
                self._free.notify_all()


def _site(host: str) -> str:
    """The end of a name that one owner has, more or less."""
    labels = host.lower().rstrip(".").split(".")
    shared = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SHARED
    return ".".join(labels[-3 if shared else -2 :])

"""`Row`: something hostile to do to a server, and what may become of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest.hostile.line import CLOSED, LEFT, Line, drive

MIB = 1 << 20

REFUSED = frozenset(
    "INVALID_ARGUMENT NOT_FOUND RESOURCE_EXHAUSTED FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED"
    " INTERNAL UNAVAILABLE ALREADY_EXISTS PERMISSION_DENIED".split()
)
"""Statuses of gRPC that tell a client of its fault, or that something is not to be had."""

MOST_UNPACKED = 64 << 20
"""Bytes that a small compressed message, or a body of HTTP, may unpack to by default."""

ANSWERED = REFUSED | {"OK"}
_UNEXPECTED = "unexpected error"

HTTP_REFUSED = frozenset(
    "400 401 403 404 405 408 409 411 413 414 415 417 429 431 500 501 503".split()
)
"""The same of HTTP; 500 is what the protocol has for JSON without a member that is needed."""

HTTP_ANSWERED = HTTP_REFUSED | {"200"}
GONE = frozenset({LEFT, CLOSED})
"""What becomes of a client that never ends its request."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large requests are: times what the rows say."""

    scale: float = 1.0

    def of(self, full: int) -> int:
        return max(int(full * self.scale), 1)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a server listens, by the name of what it serves."""

    numbers: Mapping[str, int]
    python: str

    def __getitem__(self, name: str) -> int:
        return self.numbers[name]


class Attack(Protocol):
    """Something that has been prepared: what it does may take long, but no time of the client's."""

    @property
    def size(self) -> int:
        """Bytes that it sends in all, unpacked as far as they are to be."""

    def run(self, ports: Ports, seconds: float) -> Sequence[str]:
        """The answers, each a status, or a word of `line`, and what was said."""


@dataclass(frozen=True, slots=True)
class Lines:
    """An attack by connections that are open at once."""

    size: int
    connect: Callable[[Ports], Sequence[Line]]

    def run(self, ports: Ports, seconds: float) -> Sequence[str]:
        return drive(self.connect(ports), seconds)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table.

    `expected` are the statuses that it may end with. `stall` bounds the milliseconds that another
    client may wait longer than on an idle server, `documented` the MiB that the server may take for
    it, besides what was sent and the 64 MiB that are everyone's. `beside` is what the third client
    asks meanwhile, `options` what the server is started with, `seconds` how long it may take.
    """

    name: str
    prepare: Callable[[Sizes], Attack]
    expected: frozenset[str]
    stall: float = 50.0
    documented: float = 0.0
    beside: str = "simple"
    options: tuple[str, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a row: times over those on an idle server in milliseconds, memory in MiB.

    `answered` is how many calls of others were, at least, `failed` how many of them were refused.
    """

    row: Row
    answers: str
    statuses: frozenset[str]
    health: float
    beside: float
    answered: int
    failed: int
    idle: float
    seconds: float
    memory: float
    models: float
    allowed: float
    died: str = ""

    @property
    def faults(self) -> list[str]:
        """What is not as it is to be."""
        found = [self.died] if self.died else []
        if not self.statuses <= self.row.expected:
            found.append("answer")
        if max(self.health, self.beside) > self.row.stall:
            found.append("stall")
        if self.failed:
            found.append("others failed")
        if self.memory > self.allowed:
            found.append("memory")
        if self.row.seconds is not None and self.seconds > self.row.seconds:
            found.append("time")
        return found


def statuses(answers: Sequence[str]) -> frozenset[str]:
    """The statuses without what was said, but where the server met an error that it did not expect.

    Both protocols tell that with a status that some faults of clients have, too.
    """
    return frozenset(
        _UNEXPECTED if _UNEXPECTED in answer else answer.partition(":")[0] for answer in answers
    )

"""Messages between `penstock perf` and the processes of a load: jobs, chunks, ends."""

from __future__ import annotations

from dataclasses import dataclass

from penstock_client.perf.wire.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Payload:
    """A request that is sent as it is, but for the parameters of its sequence.

    These come in at `at` of the body; `head` is what the wire wants in front. With `json_size` the
    body begins with so much JSON, whose length HTTP wants to know.
    """

    head: bytes
    body: bytes
    at: int = 0
    json_size: int = 0


@dataclass(frozen=True, slots=True)
class Sequences:
    """Requests that belong together: slots that each send one sequence after the other.

    `lengths` are those of sequences, in turns; ids go from `first_id` on, `ids` of them, and after
    the last from the start. Each sequence takes the payloads of one of `streams`, in turns, which
    are the first payload and how many there are; without any, all payloads are one stream.
    """

    lengths: tuple[int, ...]
    first_id: int = 1
    ids: int = 1 << 31
    streams: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many slots, each of which sends its next request when the last is answered."""

    slots: int


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests at times that do not depend on answers.

    Either `rate` a second, evenly or with `poisson` at random, begun `phase` of a gap late; or
    at `times` in seconds after the start, once or again and again with a `period`.
    """

    rate: float = 0.0
    poisson: bool = False
    phase: float = 0.0
    seed: int = 0
    times: tuple[float, ...] = ()
    period: float = 0.0
    most_in_flight: int = 1024


@dataclass(frozen=True, slots=True)
class Job:
    """The part of a load that one process puts on a server.

    `start_at` is a time of `time.perf_counter`, at which the first requests are sent if it is not
    past; after `seconds` none is sent any more, and none after `requests` if that is not 0. Those
    in flight then have `drain` seconds to end, and are given up. `timeout` is that of each request.
    `turn` is the payload to begin with, and `stride` the way to the next.
    """

    endpoint: Endpoint
    http: bool
    streamed: bool
    payloads: tuple[Payload, ...]
    shape: ClosedLoop | OpenLoop
    connections: int
    seconds: float
    requests: int = 0
    drain: float = 0.0
    timeout: float = 0.0
    turn: int = 0
    stride: int = 1
    sequences: Sequences | None = None


OK, CUT_OFF = 0, 1
"""Outcomes of requests that are not errors: answered, and given up at the end of the load."""
FIRST_ERROR = 2
"""The outcome of the first error in the list of a process."""

TIMES = 5
"""Times of a request in `Chunk.times`: due, start, first and last response, end."""
COUNTS = 4
"""Counts of a request in `Chunk.counts`: payload, outcome, responses, tokens."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Requests that ended since the last chunk, as bytes of arrays, and their CPU time.

    `times` are doubles, `counts` unsigned integers of 32 bits, for one request after the other;
    `between` are two times for each response behind the first: of the one before it, and its own.
    `errors` are new texts.
    `at` is when it was made and `cpu` the process's CPU time until then; `waiting` are requests
    that are due and not sent.
    """

    times: bytes
    counts: bytes
    between: bytes
    errors: tuple[str, ...]
    at: float
    cpu: float
    in_flight: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The report that a process has its connections; `problem` is empty if so."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message of a process; `problem` is empty if it did its whole job."""

    problem: str = ""


Message = Ready | Chunk | Ended
Go = float
"""The answer to `Ready`: the time of `time.perf_counter` to start at."""

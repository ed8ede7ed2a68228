"""Slots of a load, with one request in flight each, and their sequences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle, islice

from penstock_client.perf.load.job import Job, Payload, Sequences
from penstock_client.perf.wire import http, outgoing
from penstock_client.perf.wire.call import Request


class Slots:
    """Makes the requests of a process, one after the other or by sequences of slots."""

    def __init__(self, job: Job) -> None:
        self._encode = http.request if job.http else outgoing.framed
        self._payloads = job.payloads
        self._requests = [self._encode(*_joined(each, b"")) for each in job.payloads]
        self._turn = job.turn
        self._stride = job.stride
        self._sequences = _Sequences(job.sequences, job) if job.sequences else None

    def next(self, slot: int) -> tuple[int, Request]:
        """The next request of a slot, and the number of its payload."""
        if self._sequences is None:
            number = self._turn % len(self._requests)
            self._turn += self._stride
            return number, self._requests[number]
        number, parameters = self._sequences.next(slot)
        return number, self._encode(*_joined(self._payloads[number], parameters))


class _Sequences:
    """The state of each slot's sequence: its id, its stream of payloads, and what is left of it."""

    def __init__(self, sequences: Sequences, job: Job) -> None:
        # Processes take ids and lengths in turns, so that no two have the same sequence.
        self._ids = _ids(sequences, job.turn, job.stride)
        self._lengths = islice(cycle(sequences.lengths), job.turn % len(sequences.lengths), None)
        self._streams = cycle(sequences.streams or ((0, len(job.payloads)),))
        self._encode = _json_parameters if job.http else _grpc_parameters
        self._states: dict[int, tuple[int, int, int, tuple[int, int]]] = {}

    def next(self, slot: int) -> tuple[int, bytes]:
        """The number of the next payload of a slot, and its parameters."""
        sequence, step, length, stream = self._states.get(slot) or self._begun()
        if step + 1 < length:
            self._states[slot] = sequence, step + 1, length, stream
        else:
            self._states.pop(slot, None)
        first, size = stream
        return first + step % size, self._encode(sequence, step == 0, step + 1 == length)

    def _begun(self) -> tuple[int, int, int, tuple[int, int]]:
        return next(self._ids), 0, next(self._lengths), next(self._streams)


def _ids(sequences: Sequences, turn: int, stride: int) -> Iterator[int]:
    for number in count(turn, stride):
        yield sequences.first_id + number % sequences.ids


def _joined(payload: Payload, parameters: bytes) -> tuple[bytes, bytes]:
    """Head and body with further parameters at their place."""
    at, body = payload.at, payload.body
    head = payload.head
    if payload.json_size:
        size = payload.json_size + len(parameters)
        head = b"%bInference-Header-Content-Length: %d\r\n" % (head, size)
    return head, b"%b%b%b" % (body[:at], parameters, body[at:]) if parameters else body


def _json_parameters(sequence: int, start: bool, end: bool) -> bytes:
    flags = (b"false", b"true")
    return b'"sequence_id":%d,"sequence_start":%b,"sequence_end":%b,' % (
        sequence,
        flags[start],
        flags[end],
    )


def _grpc_parameters(sequence: int, start: bool, end: bool) -> bytes:
    """Entries of `ModelInferRequest.parameters`, for the end of a message."""
    entries = _entry(b"sequence_id", b"\x10" + _varint(sequence))  # InferParameter.int64_param
    if start:
        entries += _entry(b"sequence_start", b"\x08\x01")  # InferParameter.bool_param
    if end:
        entries += _entry(b"sequence_end", b"\x08\x01")
    return entries


def _entry(name: bytes, parameter: bytes) -> bytes:
    entry = b"\x0a%c%b\x12%c%b" % (len(name), name, len(parameter), parameter)
    return b"\x22%c%b" % (len(entry), entry)


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)

"""A load is divided among processes: slots, requests, times, connections and sequences."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.perf.load.job import ClosedLoop, Job, OpenLoop, Payload, Sequences
from penstock_client.perf.load.plan import Limits, Point, Traffic, jobs
from penstock_client.perf.load.slots import Slots
from penstock_client.perf.wire import http, outgoing
from penstock_client.perf.wire.endpoint import Endpoint

SERVER = Endpoint("127.0.0.1", 1)
PAYLOADS = tuple(Payload(b"h%d" % n, b"b%d" % n) for n in range(3))


def traffic(**changed: Any) -> Traffic:
    given = {"endpoint": SERVER, "http": False, "streamed": False, "payloads": PAYLOADS}
    return Traffic(**{**given, **changed})


def planned(point: Point, limits: Limits | None = None, **changed: Any) -> list[Job]:
    return jobs(traffic(**changed), point, limits or Limits())


@pytest.mark.parametrize(
    ("point", "open_", "label"),
    [
        (Point(concurrency=4), False, "concurrency 4"),
        (Point(rate=2.50), True, "rate 2.5"),
        (Point(rate=2.5, poisson=True), True, "rate 2.5 poisson"),
        (Point(times=(0.0, 1.0)), True, "trace of 2"),
        (Point(gaps=(0.1, 0.2, 0.3)), True, "3 intervals"),
    ],
)
def test_a_strength_of_a_load_has_a_name(point: Point, open_: bool, label: str) -> None:
    assert (point.open, point.label) == (open_, label)


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        (Limits(), 11.0),
        (Limits(duration=3, warmup=0.5), 3.5),
        (Limits(stability=10, window=2, most_windows=4, warmup=1), 9.0),
        (Limits(requests=5), 7 * 86400.0),
    ],
)
def test_requests_are_sent_for_so_long(limits: Limits, seconds: float) -> None:
    assert limits.seconds == seconds
    assert planned(Point(concurrency=1), limits)[0].seconds == seconds


def test_a_trace_ends_behind_its_last_request() -> None:
    trace = Point(times=(0.0, 2.0))
    assert planned(trace)[0].seconds == 2.001
    assert planned(trace, Limits(duration=0.5, warmup=0.5))[0].seconds == 1.0
    assert planned(trace, Limits(duration=0))[0].seconds == 2.0
    assert planned(trace, Limits(requests=1))[0].seconds == 7 * 86400.0


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 50))
def test_slots_and_requests_are_shared_by_all(slots: int, processes: int, requests: int) -> None:
    parts = planned(Point(concurrency=slots), Limits(processes=processes, requests=requests))
    shapes = [part.shape for part in parts]
    counts = [shape.slots for shape in shapes if isinstance(shape, ClosedLoop)]
    assert sum(counts) == slots
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)
    assert sum(part.requests for part in parts) == requests
    assert all(part.requests for part in parts) or not requests
    assert len(parts) == min(processes, slots, requests or processes)
    assert [(part.turn, part.stride) for part in parts] == [
        (n, len(parts)) for n in range(len(parts))
    ]


@pytest.mark.parametrize(
    ("slots", "changed", "limits", "connections"),
    [
        (6, {}, {}, [1]),
        (7, {}, {}, [2]),
        (100, {}, {}, [4]),
        (100, {}, {"processes": 2}, [2, 2]),
        (100, {}, {"connections": 9}, [9]),
        (3, {}, {"connections": 9}, [3]),
        (10, {}, {"connections": 3, "processes": 2}, [2, 2]),
        (5, {"http": True}, {"processes": 2}, [3, 2]),
    ],
)
def test_calls_share_connections_of_grpc(
    slots: int, changed: dict[str, Any], limits: dict[str, Any], connections: list[int]
) -> None:
    parts = planned(Point(concurrency=slots), Limits(**limits), **changed)
    assert [part.connections for part in parts] == connections


def test_a_rate_is_shared_and_each_process_begins_a_part_of_a_gap_late() -> None:
    parts = planned(Point(rate=30.0, poisson=True), Limits(processes=3, seed=7, most_in_flight=4))
    shapes = [part.shape for part in parts]
    assert shapes == [
        OpenLoop(10.0, poisson=True, phase=n / 3, seed=7000 + n, most_in_flight=(2, 1, 1)[n])
        for n in range(3)
    ]
    assert [part.drain for part in parts] == [10.0] * 3
    assert planned(Point(concurrency=1))[0].drain == 0.0
    assert planned(Point(concurrency=1), Limits(requests=1, drain=3.0))[0].drain == 3.0
    assert planned(Point(concurrency=1), Limits(timeout=2.0))[0].timeout == 2.0


def test_intervals_repeat_and_processes_take_them_in_turns() -> None:
    parts = planned(Point(gaps=(1.0, 2.0, 3.0)), Limits(processes=2))
    shapes = [part.shape for part in parts]
    assert [shape.times for shape in shapes if isinstance(shape, OpenLoop)] == [
        (1.0, 6.0, 9.0),
        (3.0, 7.0, 12.0),
    ]
    assert [shape.period for shape in shapes if isinstance(shape, OpenLoop)] == [12.0, 12.0]
    (once,) = planned(Point(times=(0.5, 1.0)))
    assert once.shape == OpenLoop(times=(0.5, 1.0))


def test_sequences_are_as_many_as_there_are_slots_of_them() -> None:
    parts = planned(Point(rate=9.0), Limits(processes=4), slots=3)
    assert [part.shape.most_in_flight for part in parts if isinstance(part.shape, OpenLoop)] == [
        *(1, 1),
        1,
    ]
    assert len(planned(Point(concurrency=9), Limits(processes=4), slots=2)) == 2


# -- the requests of a process --------------------------------------------------------------------


def job(**changed: Any) -> Job:
    given = {
        "endpoint": SERVER,
        "http": False,
        "streamed": False,
        "payloads": PAYLOADS,
        "shape": ClosedLoop(2),
        "connections": 1,
        "seconds": 1.0,
        "requests": 0,
        "drain": 0.0,
        "timeout": 0.0,
        "turn": 0,
        "stride": 1,
        "sequences": None,
    }
    return Job(**{**given, **changed})


@pytest.mark.parametrize(
    ("turn", "stride", "numbers"), [(0, 1, [0, 1, 2, 0]), (1, 2, [1, 0, 2, 1]), (4, 3, [1] * 4)]
)
def test_payloads_come_in_turns(turn: int, stride: int, numbers: list[int]) -> None:
    slots = Slots(job(turn=turn, stride=stride))
    given = [slots.next(slot) for slot in range(4)]
    assert [number for number, _ in given] == numbers
    assert given[0][1] == outgoing.framed(*_parts(PAYLOADS[numbers[0]]))


def _parts(payload: Payload) -> tuple[bytes, bytes]:
    return payload.head, payload.body


def _sequence(number: int, *flags: str) -> bytes:
    """Parameters of a message, by protobuf."""
    from penstock.protocol import grpc_service_pb2 as pb

    message = pb.ModelInferRequest()
    encoded = b""
    message.parameters["sequence_id"].int64_param = number
    encoded += bytes(message.SerializeToString())
    for flag in flags:
        one = pb.ModelInferRequest()
        one.parameters[flag].bool_param = True
        encoded += bytes(one.SerializeToString())
    return encoded


def test_sequences_of_grpc_have_their_ids_and_ends() -> None:
    sequences = Sequences(lengths=(2, 1), first_id=200, ids=3)
    slots = Slots(job(sequences=sequences))
    sent = [slots.next(slot) for slot in (0, 1, 0, 0, 1, 1)]
    expected = [
        (0, _sequence(200, "sequence_start")),
        (0, _sequence(201, "sequence_start", "sequence_end")),
        (1, _sequence(200, "sequence_end")),
        (0, _sequence(202, "sequence_start")),
        (0, _sequence(200, "sequence_start", "sequence_end")),
        (0, _sequence(201, "sequence_start")),
    ]
    for (number, request), (wanted, parameters) in zip(sent, expected, strict=True):
        assert number == wanted
        payload = PAYLOADS[wanted]
        assert request == outgoing.framed(payload.head, parameters + payload.body)


def test_sequences_over_http_stand_in_the_json_and_its_length_is_told() -> None:
    payload = Payload(b"POST\r\n", b'{"inputs":[]}binary', at=1, json_size=13)
    slots = Slots(
        job(http=True, payloads=(payload,), sequences=Sequences((2,), 5), turn=1, stride=2)
    )
    words = b'"sequence_id":6,"sequence_start":true,"sequence_end":false,'
    head = b"POST\r\nInference-Header-Content-Length: %d\r\n" % (13 + len(words))
    assert slots.next(0)[1] == http.request(head, b"{%b%b" % (words, payload.body[1:]))
    last = b'"sequence_id":6,"sequence_start":false,"sequence_end":true,'
    head = b"POST\r\nInference-Header-Content-Length: %d\r\n" % (13 + len(last))
    assert slots.next(0)[1] == http.request(head, b"{%b%b" % (last, payload.body[1:]))
    alone = Slots(job(http=True, payloads=(payload,)))
    head = b"POST\r\nInference-Header-Content-Length: 13\r\n"
    assert alone.next(0)[1] == http.request(head, payload.body)


def test_sequences_take_their_streams_and_lengths_in_turns() -> None:
    sequences = Sequences(lengths=(3, 2), streams=((0, 1), (1, 2)))
    slots = Slots(job(sequences=sequences))
    assert [slots.next(0)[0] for _ in range(8)] == [0, 0, 0, 1, 2, 0, 0, 0]
    second = Slots(job(sequences=Sequences(lengths=(3, 2)), turn=1, stride=2))
    numbers = [second.next(0)[0] for _ in range(5)]
    assert [*islice(numbers, 5)] == [0, 1, 0, 1, 2]

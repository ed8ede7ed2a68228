"""Messages of model processes, valid and spoilt."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

from penstock.hosting.link.link import encode_answer
from penstock.hosting.link.messages import Kind

_RESPONSE = ([("OUT", "INT32", (1,), 4, -1)], {"p": 1.5}, False, None)
_REQUEST: tuple[Any, ...] = (
    9,
    "m",
    "",
    "",
    [],
    (),
    {},
    0,
    0,
    0,
    False,
    False,
    None,
    [],
    "",
    0,
    None,
)
_SPAN: tuple[Any, ...] = ("s", 1, 0, 1, 2, {"a": ["b"]}, [("e", 1, {})], None, 1, [("0" * 32, 1)])

VALID: tuple[tuple[Kind, Any, bytes], ...] = (
    (Kind.READY, True, b""),
    (Kind.FAILED, ("INTERNAL", "x"), b""),
    (Kind.RESPONSE, (1, _RESPONSE), b"abcd"),
    (Kind.RESPONSES, [(1, _RESPONSE), (2, (3, {}, True, None))], b"abcdxyz"),
    (Kind.END, 2, b""),
    (Kind.ERROR, (3, "INTERNAL", "x"), b""),
    (Kind.DONE, (1, 1, 2, 3, 0), b""),
    (Kind.EXECUTED, (2, 1, 2, 3, 0, [(2, _RESPONSE)]), b"abcd"),
    (Kind.METRICS, {"a": 1.0}, b""),
    (Kind.HISTOGRAMS, {"h": [[1.0], [1, 2], 3.0, [[0, "0" * 32, 1.0, 2.0]]]}, b""),
    (Kind.UNHEALTHY, "x", b""),
    (Kind.LOG, (20, "fuzzed", "path", 1, "text", {"model": "m"}), b""),
    (Kind.CALL, (False, False, _REQUEST), b""),
    (Kind.CALL_TAKEN, (9, 1), b""),
    (Kind.CALL_CANCEL, 9, b""),
    (Kind.CALL_STOP, 9, b""),
    (Kind.CONTROL, (1, "load", ["m", "{}", {"file:1/x": b"y"}]), b""),
    (Kind.METRIC, (1, "create", [1, {"a": "b"}, None]), b""),
    (Kind.REGION_MAPPED, -5, b""),
    (Kind.FREE, [0, (-5, 65536)], b""),
    (Kind.RESCHEDULE, 1, b""),
    (Kind.RECORDED, (1, [("m", 1)], {"f": 1}, [_SPAN]), b""),
    (Kind.RECORDING, 1, b""),
    (Kind.COMMANDED, (1, "{}", None), b""),
    (Kind.PARTS, [(1, (200, [("a", "b")]), 2, False, None)], b"ab"),
    (Kind.USAGE, (1, 2, 1, 3), b""),
)
_WRONG: tuple[Any, ...] = (
    None,
    -1,
    0,
    1,
    2**63,
    -(2**63),
    1.5,
    float("nan"),
    "",
    "x",
    b"",
    [],
    {},
    [[]],
    True,
)


def frame(kind: int, header: Any, payload: bytes) -> bytes:
    return b"".join(encode_answer(kind, header, [payload]))


def inputs(seed: int, count: int) -> Iterator[bytes]:
    """So many messages, each spoilt in one of the ways."""
    chance = random.Random(seed)
    ways = (_changed_values, _changed_bytes, _changed_sizes, _noise)
    for _ in range(count):
        yield chance.choice(ways)(chance)


def _changed_values(chance: random.Random) -> bytes:
    kind, header, payload = chance.choice(VALID)
    return frame(kind, _spoilt(header, chance), payload[: chance.randrange(len(payload) + 1)])


def _spoilt(value: Any, chance: random.Random) -> Any:
    """The value with another in one place of it."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        return {**value, key: _spoilt(value[key], chance)}
    if isinstance(value, list | tuple) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], _spoilt(value[at], chance), *value[at + 1 :]]
    return chance.choice(_WRONG)


def _changed_bytes(chance: random.Random) -> bytes:
    data = bytearray(frame(*chance.choice(VALID)))
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _changed_sizes(chance: random.Random) -> bytes:
    data = frame(*chance.choice(VALID))
    sizes = [chance.choice((0, 1, 5, 9, len(data), 2**31, 2**32 - 1)) for _ in range(2)]
    return struct.pack("<II", *sizes) + data[8:]


def _noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(1, 200))

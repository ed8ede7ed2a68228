"""Attacks on one connection after another."""

from __future__ import annotations

import random
from collections import Counter

from http1.fuzzing.attack import Attack, same, understood
from http1.fuzzing.faults import FAULTS
from http1.fuzzing.peers import read_by_h11, read_by_httptools
from http1.fuzzing.responses import Response
from http1.fuzzing.valid_requests import Request, Understood, ValidRequests
from penstock.http1.limits import HttpLimits

_MOST = 30
"""Inputs to a connection."""
_SPECIAL = (
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"/", b"?", b"0"),
    *(b"1", b"f", b"g", b"-", b"+", b'"', b"\\", b"\x7f", b"\x80", b"\xff", b"\x0b"),
)
_WORDS = (
    b"content-length: 5\r\n",
    b"transfer-encoding: chunked\r\n",
    b"host: y\r\n",
    b"0\r\n\r\n",
    b"connection: close\r\n",
    b"expect: 100-continue\r\n",
    b" HTTP/1.0",
    b"CONNECT x:1 ",
    b"upgrade: x\r\nconnection: upgrade\r\n",
    b"fffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\n",
)
_SMALL = HttpLimits(max_head_size=4000, max_fields=20)


class Fuzzer:
    """Makes inputs, counts them, and judges what comes of them.

    `ends` counts connections by their last status. What escapes has all bytes of its connection
    as a note. Every `peer_every`-th connection is also read by h11, which is slow.
    """

    def __init__(self, seed: int, peer_every: int = 4) -> None:
        self.inputs = self.connections = self.bytes = self.answers = self.compared = 0
        self.ends: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._random = self._chance.random
        self._valid = ValidRequests(self._chance)
        self._faults = list(FAULTS.items())
        self._peer_every = peer_every

    def run(self, inputs: int) -> None:
        """Run `inputs` more inputs."""
        end = self.inputs + inputs
        while self.inputs < end:
            small = self._random() < 0.1
            attack = Attack(_SMALL if small else HttpLimits())
            try:
                self._attack(attack, small=small)
            except BaseException as error:
                error.add_note(repr(attack.history))
                raise
            self.connections += 1

    def _attack(self, attack: Attack, *, small: bool) -> None:
        asked: list[Request] = []
        kind, drained = self._random(), False
        turns = 1 + self._below(_MOST)
        rest = b""
        for _ in range(turns):
            data, rest = self._cut(rest + self._requests(asked))
            self._feed(attack, data)
            drained = drained or self._weather(attack)
            if attack.over or (asked and asked[-1].last):
                break
        fault = ""
        if not (asked and asked[-1].last) and kind < 0.8:
            fault, data = self._trouble(asked, rest, kind)
            while data:
                piece, data = self._cut(data)
                self._feed(attack, piece)
        else:
            self._feed(attack, rest)
        if self._random() < 0.1 and not attack.over:
            attack.end()
            drained = True
        attack.settle()
        attack.check()
        responses = attack.responses()
        over = attack.over
        attack.lose()
        self._judge(attack, responses, [request.understood for request in asked])
        if not (drained or small):
            self._judge_end(responses, asked, fault, over=over)
        self.answers += len(responses)
        self.ends[str(responses[-1].status) if responses else "none"] += 1

    # -- inputs -------------------------------------------------------------------------------

    def _below(self, bound: int) -> int:
        return int(self._random() * bound)

    def _feed(self, attack: Attack, data: bytes) -> None:
        self.inputs += 1
        self.bytes += len(data)
        attack.feed(data)
        attack.check()

    def _requests(self, asked: list[Request]) -> bytes:
        """The bytes of a few valid requests."""
        made = []
        for _ in range(self._below(4)):
            if asked and asked[-1].last:
                break
            asked.append(self._valid.next())
            made.append(asked[-1].data)
        return b"".join(made)

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        """What arrives now, and what later."""
        chance = self._random()
        if chance < 0.4:
            return data, b""
        at = self._below(len(data) + 1) if chance < 0.9 else min(1, len(data))
        return data[:at], data[at:]

    def _trouble(self, asked: list[Request], rest: bytes, kind: float) -> tuple[str, bytes]:
        """The name of a fault, or of none, and bytes that end what is asked for in order."""
        if kind < 0.3:
            name, data = self._faults[self._below(len(self._faults))]
            return name, rest + data + self._valid.next().data
        if kind < 0.75:
            following = [self._valid.next().data for _ in range(1 + self._below(3))]
            return "", rest + self._changed(b"".join(following))
        return "", rest + self._chance.randbytes(self._below(300))

    def _changed(self, data: bytes) -> bytes:
        """Some bytes changed, dropped, doubled or put in."""
        found = bytearray(data)
        for _ in range(1 + self._below(4)):
            at = self._below(min(len(found), 600) or 1)
            match self._below(6):
                case 0:
                    found[at : at + 1] = self._chance.choice(_SPECIAL)
                case 1:
                    found[at:at] = self._chance.choice(_SPECIAL)
                case 2:
                    del found[at : at + 1 + self._below(12)]
                case 3:
                    found[at:at] = found[at : at + self._below(60)]
                case 4:
                    line = found.find(b"\r\n", at) + 2
                    found[line:line] = self._chance.choice(_WORDS)
                case _:
                    found[at : at + 1] = bytes((self._below(256),))
        return bytes(found)

    def _weather(self, attack: Attack) -> bool:
        """Pause, resume or end the connection, as sockets, servers and clocks do at any time.

        Returns whether requests may stay without an answer from now on.
        """
        chance = self._random()
        if chance < 0.05:
            attack.pause()
        elif chance < 0.2:
            attack.resume()
        elif chance < 0.205:
            attack.drain()
            return True
        elif chance < 0.21:
            attack.wait(30.0)
            return True
        return False

    # -- judgement ----------------------------------------------------------------------------

    def _judge(self, attack: Attack, responses: list[Response], asked: list[Understood]) -> None:
        """Check answers: to valid requests, and against what others find in the same bytes."""
        answers = [found for response in responses if (found := understood(response))]
        refused = [response for response in responses if understood(response) is None]
        assert len(refused) <= 1, "two refusals"
        assert not refused or refused == responses[-1:], "a refusal before an answer"
        assert not refused or (refused[0].status >= 400 and refused[0].ends), "no end"
        _check_prefix(answers, asked, "valid requests")
        data = b"".join(attack.history)
        others, whole = read_by_httptools(data)
        _check_prefix(answers, others, "httptools")
        # Answers that were given before the body had come are not among theirs.
        early = bool(answers) and answers[-1].size < 0
        assert not whole or len(answers) <= len(others) + early, "more than httptools finds"
        if self.connections % self._peer_every == 0:
            self.compared += 1
            _check_prefix(answers, read_by_h11(data), "h11")

    def _judge_end(
        self, responses: list[Response], asked: list[Request], fault: str, *, over: bool
    ) -> None:
        """Check that all that was valid is answered, and that faults end the connection."""
        answered = sum(understood(response) is not None for response in responses)
        assert answered >= len(asked), f"{answered} of {len(asked)} valid requests are answered"
        if asked and asked[-1].last:
            assert over, "the connection stays behind its last request"
        if fault:
            assert over, f"{fault}: the connection goes on"
            # A request that ends before its fault, as with bad trailers, may have been answered.
            assert responses[-1].status >= 400, f"{fault}: answered"
            assert answered == len(asked), f"{fault}: answered, and then refused"


def _check_prefix(answers: list[Understood], asked: list[Understood], who: str) -> None:
    for number, (answer, request) in enumerate(zip(answers, asked, strict=False)):
        assert same(answer, request), f"{who}: {number} is {request}, answered {answer}"

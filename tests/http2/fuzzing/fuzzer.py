"""Attacks on one connection after another."""

from __future__ import annotations

import asyncio
from collections import Counter

from http2.fuzzing.judge import Attack
from http2.fuzzing.mutations import POISON, Generator
from http2.fuzzing.services import Methods
from penstock.http2.frames import Limits
from penstock.rpc.native.routes import Routes
from penstock.rpc.native.server_state import ServerState
from penstock.settings import KeepaliveSettings

_SMALL = Limits(
    max_concurrent_streams=8,
    max_frame_size=1 << 14,
    max_header_list_size=4000,
    stream_window=20_000,
    connection_window=70_000,
    max_message_size=30_000,
    max_inflated_size=30_000,
    max_unsent_control=400,
    remembered_resets=10,
    idle_burst=40,
    reset_burst=40,
)
_MOST = 50
"""Inputs to a connection."""


class Fuzzer:
    """Makes inputs, counts them, and judges what comes of them.

    `ends` counts connections by the code of the last GOAWAY. What escapes has all bytes of its
    connection as a note.
    """

    def __init__(self, talks: list[list[bytes]], seed: int) -> None:
        self.inputs = self.connections = self.bytes = 0
        self.ends: Counter[str] = Counter()
        self._generator = Generator(talks, seed)
        self._methods = Methods()
        self._read = Routes([self._methods.service()]).read
        keepalive = KeepaliveSettings()
        self._servers = [ServerState(limits, keepalive) for limits in (Limits(), _SMALL)]
        self._talks = talks

    async def run(self, inputs: int) -> None:
        """Run `inputs` more inputs."""
        end = self.inputs + inputs
        while self.inputs < end:
            attack = self._new_attack(self.connections & 1)
            try:
                await self._attack(attack)
                attack.lose()
                await _turns()
                self._check_left()
            except BaseException as error:
                error.add_note(repr(attack.history))
                raise
            code = attack.wire.goaway
            self.ends["none" if code is None else code.name] += 1
            self.connections += 1

    def _new_attack(self, server: int) -> Attack:
        return Attack(self._servers[server], self._read, self._methods.produced)

    async def control(self) -> None:
        """Check that valid traffic is still served."""
        for talk in self._talks:
            attack = self._new_attack(0)
            for frame in talk:
                attack.feed(frame)
                await _turns()
            assert attack.wire.goaway is None
            assert attack.wire.ended >= 7, attack.wire.ended
            attack.lose()
            await _turns()

    def _check_left(self) -> None:
        """Check that no handler of a closed connection still runs."""
        left = [task for endpoint in self._servers for task in endpoint.tasks]
        assert not left, str(left)

    async def _attack(self, attack: Attack) -> None:
        generator, random = self._generator, self._generator.random
        generator.begin()
        whole = True
        if random() < 0.2:
            attack.feed(generator.talk())
            self.inputs += 1
        for _ in range(_MOST):
            data, in_frames = self._input()
            whole = whole and in_frames
            self.inputs += 1
            self.bytes += len(data)
            if random() < 0.2:
                cut = generator.below(len(data))
                attack.feed(data[:cut])
                data = data[cut:]
            attack.feed(data)
            await asyncio.sleep(0)
            attack.check()
            if attack.over:
                return
            self._weather(attack, random())
        attack.resume()
        if whole:
            attack.feed(POISON[generator.below(len(POISON))])
            attack.check_left()

    def _input(self) -> tuple[bytes, bool]:
        """Bytes, and whether they are cut into frames."""
        generator, kind = self._generator, self._generator.random()
        if kind < 0.95:
            return generator.structured(), True
        if kind < 0.99:
            return generator.changed(generator.structured()), False
        return generator.raw(), False

    def _weather(self, attack: Attack, chance: float) -> None:
        """Pause, resume or drain the connection, as sockets and servers do at any time."""
        if chance < 0.02:
            attack.pause()
        elif chance < 0.06:
            attack.resume()
        elif chance < 0.065:
            attack.drain()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)

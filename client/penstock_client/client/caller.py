"""Calls with retries, hedges and load balancing, which chooses among addresses in pure code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterator, Sequence
from contextlib import aclosing, contextmanager
from hashlib import blake2b
from typing import TypeVar

from penstock_client.client.errors import (
    ClientError,
    NoServerError,
    UnavailableError,
    deadline_exceeded,
)
from penstock_client.client.policy import CallPolicy
from penstock_client.client.transport import Transport

_FIRST_REST = 0.2
_LONGEST_REST = 10.0
"""Seconds for which an address is avoided after a failure; they double with each that follows."""


class Balancer:
    """Chooses among `count` addresses. Knows no clock: `now` is any clock's, in seconds."""

    def __init__(self, count: int) -> None:
        self._open = [0] * count
        self._failures = [0] * count
        self._rests_until = [float("-inf")] * count
        self._turn = 0

    def pick(self, now: float, tried: Container[int] = (), key: str = "") -> int:
        """The address of the next call: up, not `tried` yet, with the fewest open calls.

        Where all are down or tried, one of these. Calls of equal `key` go to the same address for
        as long as it is up.
        """
        up = [n for n in range(len(self._open)) if self._rests_until[n] <= now and n not in tried]
        others = [n for n in range(len(self._open)) if n not in tried]
        choice = up or others or list(range(len(self._open)))
        if key:
            return max(choice, key=lambda n: _weight(key, n))
        self._turn += 1
        return min(choice, key=lambda n: (self._open[n], (n - self._turn) % len(self._open)))

    def begin(self, index: int) -> None:
        """Count a call as open."""
        self._open[index] += 1

    def end(self, index: int) -> None:
        """Count it no more."""
        self._open[index] -= 1

    def failed(self, index: int, now: float) -> None:
        """Note that no connection was made, or that it was lost."""
        rest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** min(self._failures[index], 30))
        self._failures[index] += 1
        self._rests_until[index] = now + rest

    def answered(self, index: int) -> None:
        """Note that the server there has answered, be it with an error."""
        self._failures[index] = 0
        self._rests_until[index] = float("-inf")


def _weight(key: str, index: int) -> bytes:
    """The weight of an address for a key, random but the same each time (rendezvous hashing)."""
    return blake2b(f"{index}:{key}".encode(), digest_size=8).digest()


Answer = TypeVar("Answer")
Unary = Callable[[Transport, float | None], Awaitable[Answer]]
Streaming = Callable[[Transport, float | None], AsyncGenerator[Answer, None]]


class _Deadline:
    """The time that is left of a call with all its attempts."""

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else _now() + timeout

    def left(self) -> float | None:
        """Seconds; raises `DeadlineExceededError` where there are none."""
        if self._end is None:
            return None
        left = self._end - _now()
        if left <= 0:
            raise deadline_exceeded()
        return left

    async def sleep(self, seconds: float, error: ClientError) -> None:
        """Wait before another attempt; raises `error` if there would be no time for it."""
        left = self.left()
        if left is not None and seconds >= left:
            raise error
        await asyncio.sleep(seconds)


class Caller:
    """Sends calls to one of several servers."""

    def __init__(self, transports: Sequence[Transport], policy: CallPolicy) -> None:
        self.transports = transports
        self.policy = policy
        self._balancer = Balancer(len(transports))

    async def call(
        self, send: Unary[Answer], timeout: float | None, policy: CallPolicy, key: str = ""
    ) -> Answer:
        """The answer to a call; raises the error of its last attempt."""
        deadline, attempt = _Deadline(timeout), 1
        while True:
            try:
                if policy.hedge_after is None:
                    return await self._reach(send, deadline, set(), key)
                return await self._hedged(send, deadline, policy.hedge_after)
            except ClientError as error:
                wait = policy.delay(attempt, error)
                if wait is None:
                    raise
                await deadline.sleep(wait, error)
            attempt += 1

    async def stream(
        self, send: Streaming[Answer], timeout: float | None, policy: CallPolicy, key: str = ""
    ) -> AsyncGenerator[Answer, None]:
        """The answers to a call, tried again for as long as none has come."""
        deadline, attempt, tried = _Deadline(timeout), 1, set[int]()
        while True:
            begun = False
            index = self._balancer.pick(_now(), tried, key)
            try:
                with self._open(index):
                    answers = send(self.transports[index], deadline.left())
                    async with aclosing(answers):
                        async for answer in answers:
                            begun = True
                            yield answer
                return
            except ClientError as error:
                tried.add(index)
                if begun:
                    raise
                if isinstance(error, NoServerError) and len(tried) < len(self.transports):
                    continue
                wait = policy.delay(attempt, error)
                if wait is None:
                    raise
                await deadline.sleep(wait, error)
                tried.clear()
            attempt += 1

    async def _reach(
        self, send: Unary[Answer], deadline: _Deadline, tried: set[int], key: str = ""
    ) -> Answer:
        """The answer of the first address that can be connected to; adds those it tries."""
        while True:
            index = self._balancer.pick(_now(), tried, key)
            tried.add(index)
            try:
                with self._open(index):
                    return await send(self.transports[index], deadline.left())
            except NoServerError:
                if len(tried) >= len(self.transports):
                    raise

    async def _hedged(self, send: Unary[Answer], deadline: _Deadline, hedge_after: float) -> Answer:
        """The first answer of up to two attempts; the other one is cancelled."""
        tried: set[int] = set()
        tasks = [asyncio.ensure_future(self._reach(send, deadline, tried))]
        try:
            done, _ = await asyncio.wait(tasks, timeout=hedge_after)
            if not done:
                if len(tried) >= len(self.transports):
                    tried = set()
                tasks.append(asyncio.ensure_future(self._reach(send, deadline, tried)))
            pending = set(tasks)
            while True:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                good = [task for task in done if task.exception() is None]
                if good or not pending:
                    return (good or list(done))[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def _open(self, index: int) -> Iterator[None]:
        """Count a call, and note whether the server could be reached."""
        balancer = self._balancer
        balancer.begin(index)
        try:
            yield
        except UnavailableError as error:
            # Only a lost or failed connection is of a subclass; others are answers.
            if type(error) is UnavailableError:
                balancer.answered(index)
            else:
                balancer.failed(index, _now())
            raise
        except ClientError:
            balancer.answered(index)
            raise
        else:
            balancer.answered(index)
        finally:
            balancer.end(index)


def _now() -> float:
    return asyncio.get_running_loop().time()

"""What a model process is asked, and what it answers: the two ends of the pulse."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hosting.puppets import PATIENCE, descriptors, eventually
from penstock.hosting.link.pulse import Answer, Ask, Pulse
from penstock.hosting.parent import questions
from penstock.hosting.parent.questions import Questions


class Asked:
    """A process that is asked, which the test plays."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        self.signs = 0
        self.questions = Questions(ours, self._on_sign)

    def _on_sign(self) -> None:
        self.signs += 1

    async def asks(self, size: int = 64) -> list[int]:
        return list(await asyncio.get_running_loop().sock_recv(self.theirs, size))

    def answer(self, *answers: Answer) -> None:
        self.theirs.send(bytes(answers))

    def close(self) -> None:
        self.questions.close()
        self.theirs.close()


@pytest_asyncio.fixture
async def asked() -> AsyncIterator[Asked]:
    asked = Asked()
    yield asked
    asked.close()


@pytest.mark.parametrize(("answer", "ready"), [(Answer.READY, True), (Answer.NOT_READY, False)])
async def test_those_who_ask_share_one_answer(asked: Asked, answer: Answer, ready: bool) -> None:
    waiting = [asyncio.ensure_future(asked.questions.ready()) for _ in range(3)]
    assert await asked.asks() == [Ask.READINESS]
    asked.answer(answer)
    assert await asyncio.gather(*waiting) == [ready] * 3
    assert asked.signs == 1


async def test_answer_that_takes_too_long_is_no(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_PATIENCE", 0.02)
    assert not await asked.questions.ready()
    assert not await asked.questions.ready()
    assert await asked.asks() == [Ask.READINESS]  # once, since it has not answered
    monkeypatch.setattr(questions, "_PATIENCE", PATIENCE)
    waiting = asyncio.ensure_future(asked.questions.ready())
    await asyncio.sleep(0)
    asked.answer(Answer.READY)
    assert await waiting


async def test_who_stops_waiting_harms_no_other(asked: Asked) -> None:
    waiting = [asyncio.ensure_future(asked.questions.ready()) for _ in range(2)]
    assert await asked.asks() == [Ask.READINESS]
    waiting[0].cancel()
    asked.answer(Answer.READY)
    assert await waiting[1]


async def test_sign_is_asked_for_once_until_it_comes(asked: Asked) -> None:
    asked.questions.ask_sign()
    asked.questions.ask_sign()
    assert await asked.asks() == [Ask.SIGN]
    asked.answer(Answer.SIGN)
    await eventually(lambda: asked.signs == 1)
    asked.questions.ask_sign()
    assert await asked.asks() == [Ask.SIGN]


@pytest.mark.parametrize("ends", [False, True])
async def test_end_is_answered_by_no(asked: Asked, ends: bool) -> None:
    """Also where the process has ended, and the link has not told it yet."""
    waiting = asyncio.ensure_future(asked.questions.ready())
    await asked.asks()
    if ends:
        asked.theirs.close()
        asked.questions.ask_sign()
        await asyncio.sleep(0.01)
    asked.questions.close()
    assert not await waiting
    assert not await asked.questions.ready()


async def test_both_ends_close_what_they_hold() -> None:
    before = descriptors()
    ours, theirs = socket.socketpair()
    read = Questions(ours, lambda: None)
    pulse = Pulse(theirs.detach(), lambda: pulse.answer(ready=True))
    assert await read.ready()
    read.close()
    await eventually(lambda: descriptors() == before)


async def test_process_has_its_end_for_itself() -> None:
    """What it starts does not inherit it."""
    ours, theirs = socket.socketpair()
    number = theirs.detach()
    os.set_inheritable(number, True)
    Pulse(number, lambda: None)
    assert not os.get_inheritable(number)
    ours.close()

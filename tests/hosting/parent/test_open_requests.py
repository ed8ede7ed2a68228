"""Requests on the link to a model process: their numbers, and those that come again."""

from __future__ import annotations

from typing import Any

import pytest

from fakes import make_inference, make_response, turns
from penstock.core.errors import UnavailableError
from penstock.hosting.link.arena import create
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Kind, pack_response
from penstock.hosting.parent.open_requests import OpenRequests
from penstock.inflight.inference import Inference

_NOTHING = memoryview(b"")


class Link:
    """The process on the other side: what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Kind, Any]] = []
        memory = SharedMemory(out=create(1 << 16), into=create(1 << 16))
        memory.close()  # all tensors go inside
        self.requests = OpenRequests(memory, lambda kind, header, _=(): self._tell(kind, header))

    def _tell(self, kind: Kind, header: Any) -> None:
        self.told.append((kind, header))

    def send(self, inference: Inference) -> int:
        """Its number."""
        ((number, *_),), _ = self.requests.pack([inference])
        return int(number)

    def answer(self, number: int, *, final: bool) -> None:
        header, _ = pack_response(make_response(1, final=final))
        self.requests.response((number, header), _NOTHING)


@pytest.fixture
async def link() -> Link:
    return Link()


@pytest.mark.contract("PY-28")
async def test_a_request_that_comes_again_keeps_its_number(link: Link) -> None:
    inference = make_inference()
    number = link.send(inference)
    link.requests.reschedule(number, _NOTHING)
    assert inference.rescheduled
    assert (link.send(inference), link.send(make_inference())) == (number, number + 1)
    link.answer(number, final=True)
    assert inference.abandoned


async def test_who_leaves_before_a_request_comes_again_is_known_to_have_left(link: Link) -> None:
    inference = make_inference()
    number = link.send(inference)
    link.requests.reschedule(number, _NOTHING)
    inference.stream.close()
    await turns()
    assert link.told == [(Kind.CANCEL, number)]
    link.answer(number, final=True)


async def test_word_of_a_request_that_nobody_waits_for_is_passed_over(link: Link) -> None:
    inference = make_inference()
    number = link.send(inference)
    inference.stream.close()
    link.requests.reschedule(number, _NOTHING)
    assert not inference.rescheduled


async def test_what_would_come_again_fails_with_the_process(link: Link) -> None:
    inference = make_inference()
    number = link.send(inference)
    link.requests.reschedule(number, _NOTHING)
    link.requests.fail_all(UnavailableError("killed"))
    assert inference.stream.error is not None
    assert link.send(inference) != number

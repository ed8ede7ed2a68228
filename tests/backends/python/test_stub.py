"""A model process's link to the server, and what forks of the model's may do with it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor
from penstock.hosting.arena import create
from penstock_backends.python.stub import Stub

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

SIZE = 1 << 20
LARGE = {"X": Tensor.from_numpy(np.full(1 << 16, 7, np.uint8))}


class Link:
    """A stub, and what the server sees of it."""

    def __init__(self) -> None:
        self.server, connection = socket.socketpair()
        self._inputs, self._outputs = create(SIZE), create(SIZE)
        self.stub = Stub(connection, self._inputs, self._outputs)
        self.stub.runtime.executing = True
        self._connection = connection

    @property
    def written(self) -> bool:
        """Whether anything is in the memory that the server reads."""
        return any(os.pread(self._outputs, SIZE, 0))

    def close(self) -> None:
        self.server.close()
        self._connection.close()
        os.close(self._inputs)
        os.close(self._outputs)


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link()
    yield link
    link.close()


def in_a_fork(link: Link, work: Callable[[], object]) -> int:
    """How a fork of the model's ends that does this; 9 if it goes on."""
    child = os.fork()
    if child == 0:
        try:
            link.stub.cut()
            work()
        finally:
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def respond(link: Link) -> None:
    link.stub.respond(1, InferenceResponse(LARGE))


def pack(link: Link) -> None:
    link.stub.pack_response(InferenceResponse(LARGE), [])


def call(link: Link) -> None:
    link.stub.runtime.call(InferenceRequest("m", inputs=LARGE), decoupled=False)


@pytest.mark.parametrize("work", [respond, pack, call])
def test_a_fork_ends_before_it_writes_to_shared_memory(
    link: Link, work: Callable[[Link], None]
) -> None:
    assert in_a_fork(link, lambda: work(link)) == 1
    assert not link.written
    work(link)
    assert link.written


def test_a_fork_that_has_left_the_models_code_is_ended(link: Link) -> None:
    assert in_a_fork(link, link.stub.end_fork) == 1
    link.stub.end_fork()


def test_a_fork_that_stays_in_the_models_code_goes_on(link: Link) -> None:
    assert in_a_fork(link, lambda: None) == 9

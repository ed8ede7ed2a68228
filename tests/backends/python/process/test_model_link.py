"""The link of a model process, and its use by forks of the process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import uvloop

from backends.python.linked import Linked
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor
from penstock.hosting.link.blocking import LinkClosedError
from penstock.hosting.link.messages import Kind

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

LARGE = {"X": Tensor.from_numpy(np.full(1 << 16, 7, np.uint8))}


def in_a_fork(linked: Linked, work: Callable[[], object]) -> int:
    """The exit status of a fork that runs `work`; 9 if the fork goes on."""
    child = os.fork()
    if child == 0:
        try:
            linked.link.close_in_fork()
            work()
        finally:
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def respond(linked: Linked) -> None:
    linked.link.send_response(1, InferenceResponse(LARGE))


def pack(linked: Linked) -> None:
    linked.link.pack_response(InferenceResponse(LARGE), [])


def call(linked: Linked) -> None:
    linked.runtime.call(InferenceRequest("m", inputs=LARGE), decoupled=False)


@pytest.mark.parametrize("work", [respond, pack, call])
def test_a_fork_ends_before_it_writes_to_shared_memory(
    linked: Linked, work: Callable[[Linked], None]
) -> None:
    assert in_a_fork(linked, lambda: work(linked)) == 1
    assert not linked.written
    work(linked)
    assert linked.written


def test_a_fork_that_has_left_the_models_code_is_ended(linked: Linked) -> None:
    assert in_a_fork(linked, linked.link.exit_if_fork) == 1
    linked.link.exit_if_fork()


def test_a_fork_that_has_closed_its_output_is_ended_too(linked: Linked) -> None:
    def leave() -> None:
        os.close(2)
        linked.link.exit_if_fork()

    assert in_a_fork(linked, leave) == 1


def test_a_fork_that_stays_in_the_models_code_goes_on(linked: Linked) -> None:
    assert in_a_fork(linked, lambda: None) == 9


def test_message_larger_than_the_sockets_buffer_is_sent_while_a_loop_reads(
    linked: Linked,
) -> None:
    """uvloop makes the sockets that it watches non-blocking; writes have to wait all the same."""
    payload = bytes(8 << 20)

    async def send() -> None:
        linked.link.read_on(asyncio.get_running_loop(), lambda: None)
        linked.link.send(Kind.UNHEALTHY, "large", [payload])

    with ThreadPoolExecutor(1) as executor:
        received = executor.submit(linked.receive_one)
        uvloop.run(send())
        kind, header, data = received.result()
    assert (kind, header, len(data)) == (Kind.UNHEALTHY, "large", len(payload))


async def test_loop_is_told_of_a_message_that_cannot_be_handled(linked: Linked) -> None:
    """Those read with it are gone, so that the process must end."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    logged = loop.create_future()
    loop.set_exception_handler(lambda _, context: logged.set_result(context["exception"]))
    linked.link.on(Kind.TAKEN, refuse)
    linked.link.read_on(loop, told.set)
    await told.wait()
    told.clear()
    linked.tell(Kind.TAKEN, [])
    await told.wait()
    with pytest.raises(LinkClosedError):
        linked.link.poll_work()
    assert isinstance(await logged, MemoryError)


def refuse(*_: object) -> None:
    raise MemoryError

"""Helper processes that decode large JSON: whoever decodes holds Python's lock, there their own.

A call, and what it returns, travel as a parcel: anonymous memory whose descriptor is sent over a
socket. Texts and tensors lie there as they are and are not copied again.
"""

from __future__ import annotations

import asyncio
import copyreg
import gc
import io
import mmap
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

from penstock.core.buffer import Buffer
from penstock.core.errors import InternalError, UnavailableError
from penstock.core.tensor import Tensor
from penstock.system.model_variables import passed_on

T = TypeVar("T")

_SHORT: Final = 8 << 20
"""Bytes of a text up to which it does not wait for those that are longer."""

_STEP: Final = 1 << 20
"""Bytes that are copied in one turn of the event loop."""

_NICENESS: Final = 5
"""How much less than the server the processes want a core that both could use."""

_PROGRAM: Final = "from penstock.gateway.json.helper import main; main()"
_WORD: Final = 8


class JsonHelper:
    """Calls functions in processes that are started when there is something to decode.

    One of them is for short texts, one for long ones; in each one call runs at a time.
    """

    def __init__(self) -> None:
        self._short, self._long = _Process(), _Process()

    async def run(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """The result of a call that decodes a text of `size` bytes; raises what that raises.

        The function, its arguments and what it returns are pickled. A call that is cancelled
        before it begins is dropped. Raises `UnavailableError` if the process is killed.
        """
        process = self._short if size <= _SHORT else self._long
        done, value = await process.run((function, args))
        if not done:
            raise value
        result: T = value
        return result

    def close(self) -> None:
        """End the processes; calls that run or wait fail."""
        self._short.close()
        self._long.close()


class _Process:
    """One process, started by the first call, and again by the first after its death."""

    def __init__(self) -> None:
        self._closed = False
        self._lock = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    async def run(self, call: Any) -> tuple[bool, Any]:
        """Whether a call returned, and what it returned or raised."""
        await self._lock.acquire()
        # A call that has begun is awaited even if its caller is cancelled: the next one would
        # get its answer.
        exchange = asyncio.ensure_future(self._exchange(call))
        exchange.add_done_callback(self._ended)
        return await asyncio.shield(exchange)

    def close(self) -> None:
        """Kill the process, and start no other; a call that runs sees its end."""
        self._closed = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._link is not None and not self._lock.locked():
            self._link.close()
            self._link = None

    def _ended(self, exchange: asyncio.Future[tuple[bool, Any]]) -> None:
        self._lock.release()
        if self._closed or exchange.cancelled() or exchange.exception() is not None:
            self._kill()

    async def _exchange(self, call: Any) -> tuple[bool, Any]:
        try:
            link = self._started()
            parcel = os.memfd_create("penstock-json", os.MFD_CLOEXEC)
            try:
                for part in _parts(call):
                    _write(parcel, part)
                    await asyncio.sleep(0)
                socket.send_fds(link, [b"\0"], [parcel])
            finally:
                os.close(parcel)
        except ConnectionError as error:
            raise _lost() from error
        except OSError as error:  # such as too many open files
            raise UnavailableError(f"large JSON cannot be decoded now: {error.strerror}") from error
        await _readable(link)
        answer: tuple[bool, Any] | None = _received(link)
        if answer is None:
            raise _lost()
        return answer

    def _started(self) -> socket.socket:
        """The link to a process that lives, as far as is known."""
        if self._closed:
            raise _lost()
        if self._link is not None and self._process is not None and self._process.poll() is None:
            return self._link
        if self._link is not None:
            self._link.close()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.setblocking(False)
        with theirs:
            # Takes a few milliseconds of the loop, at the first text and after a kill.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=passed_on(os.environ),
                start_new_session=True,
            )
        return self._link


def main() -> None:
    """Run calls one after another, as a process of its own, until the server is gone."""
    link = socket.socket(fileno=int(sys.argv[1]))
    os.nice(_NICENESS)
    gc.disable()  # it would visit millions of objects, of which none are cycles
    while (call := _received(link)) is not None:
        parcel = os.memfd_create("penstock-json", os.MFD_CLOEXEC)
        for part in _answer(call):
            _write(parcel, part)
        del call
        try:
            socket.send_fds(link, [b"\0"], [parcel])
        except ConnectionError:
            return  # the server has gone
        os.close(parcel)


def _answer(call: Any) -> list[Buffer]:
    """The parcel for a call's outcome, or for why that cannot travel."""
    try:
        return [*_parts(_outcome(*call))]
    except Exception as error:  # whatever pickle raises
        return [*_parts((False, InternalError(f"what was decoded cannot be sent: {error}")))]


def _outcome(function: Callable[..., Any], args: Sequence[Any]) -> tuple[bool, Any]:
    try:
        return True, function(*args)
    except Exception as error:  # the caller's, whatever it is
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return False, error


def _lost() -> UnavailableError:
    return UnavailableError("the process that decodes large JSON ended; try again")


async def _readable(link: socket.socket) -> None:
    """Wait until something has come, or the other side has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(link.fileno(), _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(link.fileno())


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _received(link: socket.socket) -> Any:
    """The value in the parcel that has come; `None` if the other side has ended."""
    try:
        _, descriptors, _, _ = socket.recv_fds(link, 1, 1)
    except ConnectionError:
        return None
    if not descriptors:
        return None
    memory = memoryview(mmap.mmap(descriptors[0], 0, access=mmap.ACCESS_READ))
    os.close(descriptors[0])
    end = len(memory) - _WORD
    begin = int.from_bytes(memory[end:], sys.byteorder)
    parts, at = [], 0
    for size in pickle.loads(memory[begin:end]):
        parts.append(memory[at : at + size])
        at += size
    *buffers, value = parts
    unpickler = pickle.Unpickler(io.BytesIO(value))
    unpickler.persistent_load = buffers.__getitem__  # type: ignore[method-assign]
    return unpickler.load()


def _parts(value: Any) -> Iterator[Buffer]:
    """The bytes of a parcel: the buffers, the value, the sizes of these, and where they begin."""
    buffers: list[memoryview] = []

    def place(part: Any) -> int | None:
        if type(part) is not memoryview:
            return None
        buffers.append(part.cast("B"))
        return len(buffers) - 1

    text = io.BytesIO()
    pickler = pickle.Pickler(text, pickle.HIGHEST_PROTOCOL)
    pickler.persistent_id = place  # type: ignore[method-assign]
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    parts = [*buffers, text.getbuffer()]
    for part in parts:
        for at in range(0, len(part), _STEP):
            yield part[at : at + _STEP]
    sizes = [len(part) for part in parts]
    yield pickle.dumps(sizes)
    yield sum(sizes).to_bytes(_WORD, sys.byteorder)


def _write(descriptor: int, part: Buffer) -> None:
    view = memoryview(part)
    while len(view):
        view = view[os.write(descriptor, view) :]


class _Reducers(dict[type, Callable[[Any], Any]]):
    """How values are pickled: dataclasses as their fields, which pickle does not know of those
    that are compiled."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        if not is_dataclass(kind):
            raise KeyError(kind)
        names = [field.name for field in fields(kind)]
        return lambda value: (kind, tuple([getattr(value, name) for name in names]))


def _reduced_tensor(tensor: Tensor) -> tuple[Any, ...]:
    return Tensor, (tensor.datatype, tensor.shape, memoryview(tensor.buffer), tensor.shared)


_REDUCERS: Final = _Reducers(copyreg.dispatch_table)
_REDUCERS[Tensor] = _reduced_tensor

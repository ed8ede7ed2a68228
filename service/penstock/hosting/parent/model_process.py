"""`ModelProcess`: one model process and the link to it, from its start to its end.

Beside requests it carries a heartbeat, which notices a hang, probes of liveness and readiness, and
commands of operators.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

from penstock.core.backend import InstanceContext
from penstock.core.call_chain import CallingInstance
from penstock.core.errors import InferenceError, UnavailableError, error_from_code
from penstock.core.log.log_fields import FIELDS
from penstock.hosting.link.introduction import introduce
from penstock.hosting.link.link import Answer, Handler, Link, Probe
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Commanded, Failed, Kind, Log
from penstock.hosting.link.region_sharing import Lender
from penstock.hosting.link.response_sender import Send
from penstock.hosting.parent.answer_types import DECODERS
from penstock.hosting.parent.child import Child, ProcessSpec
from penstock.hosting.parent.in_flight import InFlight
from penstock.hosting.parent.services import ModelServices, ServedCalls
from penstock.hosting.parent.starter import ProcessStarter

logger = logging.getLogger(__name__)

_MOST_LOGGERS = 10_000


class ModelProcess:
    """A child process with one instance of a model. It dispatches the messages of the link.

    `in_flight` is what processes of this instance were sent, this one and those before it.
    `on_hung` is called when the process hangs, and when it gives a sign again.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        context: InstanceContext,
        starter: ProcessStarter,
        in_flight: InFlight,
        on_hung: Callable[[bool], None],
        services: ModelServices | None = None,
    ) -> None:
        self.metrics: Mapping[str, float] = {}
        self.histograms: Mapping[str, Any] = {}
        self.caller = CallingInstance(context.name, context.config.name)
        self._spec = spec
        self._context = context
        self._starter = starter
        self._loop = asyncio.get_running_loop()
        self._child: Child | None = None
        self._link: Link | None = None
        self._memory: SharedMemory | None = None
        self._calls: ServedCalls | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._complaint = ""
        self._in_flight = in_flight
        self._services = services
        self._origin = {"model": context.config.name, "instance": context.name}
        self.commands = Commands(self._send)
        self._probes: Probes | None = None
        self._signs = 0
        self._probed_while_executing = False
        self.heartbeat = Heartbeat(
            spec.hang_seconds,
            in_flight.is_waiting,
            self._count_signs,
            self._probe_liveness,
            on_hung,
        )
        self._handlers = self._message_handlers()

    def _message_handlers(self) -> dict[int, Handler]:
        """The handlers of the process's messages by kind, without those that its start adds."""
        in_flight = self._in_flight
        return {
            Kind.READY: self._on_ready,
            Kind.FAILED: self._on_failed,
            Kind.DONE: in_flight.on_done,
            Kind.EXECUTED: in_flight.on_executed,
            Kind.RESPONSE: in_flight.on_response,
            Kind.RESPONSES: in_flight.on_responses,
            Kind.PARTS: in_flight.on_parts,
            Kind.END: in_flight.on_end,
            Kind.ERROR: in_flight.on_error,
            Kind.RESCHEDULE: in_flight.on_reschedule,
            Kind.RECORDED: in_flight.on_recorded,
            Kind.RECORDING: in_flight.on_recording,
            Kind.COMMANDED: self.commands.on_commanded,
            Kind.USAGE: in_flight.on_usage,
            Kind.METRICS: self._on_metrics,
            Kind.HISTOGRAMS: self._on_histograms,
            Kind.UNHEALTHY: self._on_unhealthy,
            Kind.LOG: partial(_log, self._origin),
        }

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def blocks(self) -> int:
        """Number of shared-memory blocks that the process has not released."""
        return 0 if self._memory is None else self._memory.used

    async def open(self) -> None:
        """Start the process and wait until its model is loaded."""
        try:
            await self._open()
        finally:
            self._starter.settled(self._spec)

    async def _open(self) -> None:
        pulse = await self._start()
        assert self._link is not None
        spans = self._services is not None and self._services.propagates
        introduction = introduce(self._spec, self._context, pulse, spans=spans)
        self._link.send(Kind.INITIALIZE, introduction)
        await asyncio.wait([self._ready, self._lost], return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            reason = await self.ended()
            raise UnavailableError(f"the model process of instance '{self._context.name}' {reason}")
        self._ready.result()

    async def _start(self) -> int:
        """Start the process and the link; returns the descriptor of the child's end of `Probes`."""
        started = await self._starter.start(self._spec, self._origin)
        self._child = started.child
        try:
            memory = self._memory = self._share_memory(started.inputs, started.outputs)
        except BaseException:
            started.link.close()
            started.probes.close()
            raise
        finally:
            started.close_arenas()
        self._probes = Probes(started.probes, self._on_sign)
        await self._connect(started.link, memory)
        return started.pulse

    def _share_memory(self, inputs: int, outputs: int) -> SharedMemory:
        """Map the two arenas, and lend the process the clients' regions that it can map."""
        sequences = self._context.config.sequence_batching
        lender = Lender(
            self._offer_region,
            partial(self._send, Kind.REGION_GONE),
            model=self._context.config.name,
            repeats=sequences is not None and sequences.iterative_sequence,
        )
        self._handlers[Kind.REGION_MAPPED] = lambda number, _: lender.accepted(number)
        return SharedMemory(out=os.dup(inputs), into=os.dup(outputs), lender=lender)

    def _offer_region(self, offer: bytes, descriptor: int) -> bool:
        return self._probes is not None and self._probes.offer(offer, descriptor)

    async def _connect(self, ours: socket.socket, memory: SharedMemory) -> None:
        """Open the link over our end of the pair, and send requests there from now on."""
        self._serve_calls(memory)
        _, self._link = await self._loop.create_unix_connection(
            lambda: Link(
                self._handlers,
                lambda: _settle(self._lost, None),
                self._is_calling,
                DECODERS,
                self._on_broken,
            ),
            sock=ours,
        )
        memory.open(lambda freed: self._send(Kind.FREE, freed))
        self._in_flight.attach(self._link, memory, self._on_late)

    def _serve_calls(self, memory: SharedMemory) -> None:
        """Register the handlers for the model's own calls and for freed blocks of memory."""
        self._handlers[Kind.FREE] = lambda blocks, _: memory.free(blocks)
        if self._services is not None:
            in_flight = self._in_flight
            self._calls = ServedCalls(
                self._services,
                self.caller,
                self.pid,
                memory,
                self._send,
                lambda: in_flight.current,
                in_flight.timeline_of,
                model=self._context.config.name,
                decoupled=self._context.config.decoupled,
            )
            self._handlers |= self._calls.handlers

    def _is_calling(self) -> bool:
        """Whether the model waits for an answer of another model."""
        return bool(self._calls)

    def _on_late(self) -> None:
        """An execution has taken too long: kill the process, which is handled as any other end."""
        assert self._child is not None
        limit = self._spec.execution_timeout
        self._complaint = f"an execution took longer than its limit of {limit:g} s"
        self._child.kill_nowait()

    def _on_broken(self, error: Exception) -> None:
        """What it has sent breaks the protocol: kill it, which is handled as any other end."""
        assert self._child is not None
        self._complaint = f"it sent what no model process sends: {error or type(error).__name__}"
        self._child.kill_nowait()

    # -- liveness and readiness ---------------------------------------------------------------

    @property
    def hung(self) -> bool:
        """Whether it has given no sign for too long while requests waited."""
        return self.heartbeat.hung

    async def probe(self) -> bool:
        """Whether its model is ready; one without a readiness check is, while it executes."""
        if self.hung or self._probes is None:
            return False
        if self._in_flight.executing and not self._probed_while_executing:
            return True
        return await self._probes.ready()

    def end_hung(self) -> None:
        """Kill the process, since it is hung, which is handled as any other end."""
        assert self._child is not None
        self._complaint = f"it gave no sign for {self._spec.hang_seconds:g} s"
        self._child.kill_nowait()

    def _count_signs(self) -> int:
        """How often something has come from the process."""
        return self._signs + (0 if self._link is None else self._link.reads)

    def _probe_liveness(self) -> None:
        if self._probes is not None:
            self._probes.probe_liveness()

    def _on_sign(self) -> None:
        self._signs += 1
        self.heartbeat.on_sign()

    def shrink(self) -> None:
        """Have it free its caches, once it has done what it was sent before."""
        self._send(Kind.SHRINK, None)

    # -- its end ------------------------------------------------------------------------------

    async def ended(self) -> str:
        """Wait for the end of the process or of its link; how it ended, as a verb phrase."""
        assert self._child is not None
        ended = asyncio.ensure_future(self._child.ended())
        try:
            await asyncio.wait([self._lost, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if self._complaint:
            return f"was stopped since {self._complaint}"
        return await self._child.exit_reason()

    def abandon(self) -> None:
        """The process is dead or will be stopped: nothing waits for its messages any more."""
        self.heartbeat.close()
        self.commands.close()
        if self._probes is not None:
            self._probes.close()
        if self._calls is not None:
            self._calls.close()

    async def stop(self) -> None:
        """Let the backend finalize, then make sure that the process is gone."""
        assert self._link is not None
        assert self._child is not None
        self.abandon()
        self._link.send(Kind.FINALIZE, None)
        try:
            await self._child.ended(self._spec.stop_timeout)
        except asyncio.CancelledError:
            self._child.abandon()
            self._lost.add_done_callback(self._release_memory)
            raise
        await self.kill()

    async def kill(self) -> None:
        """End the process and everything that it has started."""
        self.abandon()
        if self._link is not None:
            self._link.close()
        try:
            if self._child is not None:
                await self._child.kill()
        finally:
            self._release_memory()

    def _release_memory(self, _: object = None) -> None:
        """Close its shared memory; to its last the process may write to what it was lent."""
        if self._memory is not None:
            self._memory.close()

    def _send(self, kind: Kind, header: Any, payload: Sequence[Any] = ()) -> None:
        if self._link is not None:
            self._link.send(kind, header, payload)

    # -- messages of the process --------------------------------------------------------------

    def _on_ready(self, probed_while_executing: bool, _: memoryview) -> None:
        self._probed_while_executing = probed_while_executing
        _settle(self._ready, None)

    def _on_failed(self, header: Failed, _: memoryview) -> None:
        if not self._ready.done():
            self._ready.set_exception(error_from_code(*header))

    def _on_metrics(self, numbers: dict[str, float], _: memoryview) -> None:
        self.metrics = numbers

    def _on_histograms(self, states: dict[str, Any], _: memoryview) -> None:
        for bounds, counts, *_rest in states.values():
            if len(counts) != len(bounds) + 1:
                raise ValueError(f"a histogram of {len(bounds)} bounds with {len(counts)} counts")
        self.histograms = states

    def _on_unhealthy(self, complaint: str, _: memoryview) -> None:
        self._complaint = complaint


def _settle(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


def _logger(name: str) -> logging.Logger:
    """The logger of this name; of many new names, which Python never forgets, a common one."""
    known = logging.Logger.manager.loggerDict
    return logging.getLogger(name if name in known or len(known) < _MOST_LOGGERS else __name__)


def _log(origin: Mapping[str, str], header: Log, _: memoryview) -> None:
    """Write a record of the model process to the log, as from the line that it names."""
    level, name, path, line, text, fields = header
    own = _logger(name)
    if own.isEnabledFor(level):
        extra = {**{key: fields[key] for key in FIELDS if key in fields}, **origin}
        own.handle(own.makeRecord(name, level, path, line, "%s", (text,), None, None, extra))


_PARTS = 10
_LONGEST_TICK = 1.0


@dataclass(slots=True)
class Silence:
    """A counter of ticks without a sign of life. Knows no clock.

    So a server that was itself held up, as by a suspended machine, counts one tick for that time.
    """

    limit: int
    ticks: int = 0
    _signs: int = 0

    def begin(self, signs: int) -> None:
        """Count from now on; `signs` is how many there have ever been."""
        self._signs, self.ticks = signs, 0

    def tick(self, signs: int) -> None:
        """Count a tick, unless there was a sign since the last one."""
        if not self.ended(signs):
            self.ticks += 1

    def ended(self, signs: int) -> bool:
        """Whether there was a sign since the last check; then counting starts again."""
        if signs == self._signs:
            return False
        self.begin(signs)
        return True

    @property
    def too_long(self) -> bool:
        """Whether it has lasted for as many ticks as a process may take."""
        return self.ticks >= self.limit


class Heartbeat:
    """Hang detection for a process while requests wait; an idle one is left alone.

    Whatever comes from the process is a sign: `signs` returns their number so far. After each
    silent tick `probe` is called, which asks for one. `on_change` is called with `hung` once the
    silence has lasted for `seconds`, up to a tick more, and again with the next sign, for which a
    hung process is watched in any case: it gets no requests. With 0 seconds nothing is watched.
    `timer` is set while it watches.
    """

    def __init__(
        self,
        seconds: float,
        waiting: Callable[[], bool],
        signs: Callable[[], int],
        probe: Callable[[], None],
        on_change: Callable[[bool], None],
    ) -> None:
        self.hung = False
        self._waiting = waiting
        self._signs = signs
        self._probe = probe
        self._on_change = on_change
        self._tick_seconds = min(seconds / _PARTS, _LONGEST_TICK)
        self._silence = Silence(ceil(seconds / self._tick_seconds) if seconds else 0)
        self.timer: asyncio.TimerHandle | None = None
        self._on = seconds > 0
        self._loop = asyncio.get_running_loop()

    def watch(self) -> None:
        """A request was sent to the process: watch it until none waits."""
        if self.timer is None and self._on:
            if not self.hung:
                self._silence.begin(self._signs())
            self._set_timer()

    def on_sign(self) -> None:
        """Check whether a hung process has given a sign."""
        if self.hung and self._silence.ended(self._signs()):
            self._change(hung=False)

    def close(self) -> None:
        """Watch no longer."""
        self._on = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _tick(self) -> None:
        if not self.hung and not self._waiting():
            self.timer = None
            return
        self._set_timer()
        silence = self._silence
        if self.hung:
            self.on_sign()
        else:
            silence.tick(self._signs())
        if silence.ticks:
            self._probe()
        if silence.too_long and not self.hung:
            self._change(hung=True)

    def _set_timer(self) -> None:
        self.timer = self._loop.call_later(self._tick_seconds, self._tick)

    def _change(self, *, hung: bool) -> None:
        self.hung = hung
        self._on_change(hung)


_PATIENCE = 5.0
"""Seconds after which a process that does not answer is not ready, as in Triton."""


class Probes:
    """Liveness and readiness probes of a model process, one of each kind at a time.

    `on_sign` is called for every answer. Takes ownership of the socket.
    """

    def __init__(self, connection: socket.socket, on_sign: Callable[[], None]) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._on_sign = on_sign
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._read)
        self._liveness_due = False
        self._readiness: asyncio.Future[bool] | None = None
        self._closed = False

    def probe_liveness(self) -> None:
        """Send a liveness probe, unless one is unanswered."""
        if not self._liveness_due:
            self._liveness_due = self._send(Probe.LIVENESS)

    async def ready(self) -> bool:
        """Whether the model reports that it is ready; false after 5 seconds without an answer.

        Callers share an answer: while one is due, no other probe is sent.
        """
        if self._closed:
            return False
        if self._readiness is None:
            if not self._send(Probe.READINESS):
                return False
            self._readiness = self._loop.create_future()
        readiness = self._readiness
        await asyncio.wait([readiness], timeout=_PATIENCE)
        return readiness.done() and readiness.result()

    def offer(self, offer: bytes, descriptor: int) -> bool:
        """Send the offer of a region with its file; whether the socket has taken it."""
        if self._closed:
            return False
        try:
            socket.send_fds(self._connection, [bytes((Probe.REGION,)) + offer], [descriptor])
        except OSError:  # it has ended, or does not read
            return False
        return True

    def close(self) -> None:
        """Close the socket, as the process has ended or will be: who waits gets "not ready"."""
        if self._closed:
            return
        self._closed = True
        self._settle(ready=False)
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()

    def _send(self, probe: Probe) -> bool:
        """Whether the socket has taken a probe, so that there will be an answer."""
        try:
            self._connection.send(bytes((probe,)))
        except OSError:  # it has ended, which the link reports, or does not read
            return False
        return True

    def _read(self) -> None:
        try:
            answers = self._connection.recv(64)
        except BlockingIOError:
            return
        except OSError:
            answers = b""
        if not answers:
            self._loop.remove_reader(self._connection.fileno())
        for answer in answers:
            if answer == Answer.ALIVE:
                self._liveness_due = False
            else:
                self._settle(ready=answer == Answer.READY)
            self._on_sign()

    def _settle(self, *, ready: bool) -> None:
        due, self._readiness = self._readiness, None
        if due is not None and not due.done():
            due.set_result(ready)


class Commands:
    """Sends commands and matches the replies by number; who no longer waits cancels nothing."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ended: InferenceError | None = None

    def __len__(self) -> int:
        """Number of commands that are not answered."""
        return len(self._waiting)

    async def ask(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """The value that the backend returns; raises what it raises."""
        if self._ended is not None:
            raise self._ended
        self._last += 1
        future = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = future
        self._send(Kind.COMMAND, (self._last, action, json.dumps(dict(arguments))))
        return await future

    def on_commanded(self, header: Commanded, _: memoryview) -> None:
        """Handle a reply."""
        number, text, problem = header
        future = self._waiting.pop(number)
        if future.done():  # nobody waits any more
            return
        if problem is not None:
            future.set_exception(error_from_code(*problem))
        else:
            future.set_result(json.loads(text))

    def close(self) -> None:
        """The process is gone: no reply will come."""
        self._ended = UnavailableError("the model process ended before the command was carried out")
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._ended)

"""`ModelStreamInfer` calls in random orders: every response is written, none too early."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.examples import examples
from penstock.core.errors import InternalError
from rpc.manual import ask, number
from rpc.stepped_stream import Received, SteppedStream

MODELS = st.sampled_from(["once", "once2", "many", "many2", "nope", "strict"])
REFUSALS = {
    "nope": "Request for unknown model: 'nope' is not found",
    "strict": "not like this",
}
NONE = "expected a single response, got 0"
CHOICES = st.integers(0, 9)


@dataclass
class Asked:
    """The expected and the received messages of one request."""

    model: str
    empty_final: bool
    made: list[Received] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    ended: bool = False

    @property
    def ordered(self) -> bool:
        return not self.model.startswith("many")

    def make(self, what: Received) -> None:
        """A message is expected, unless the one of a model that is not decoupled has been made."""
        if not (self.ordered and self.made):
            self.made.append(what)

    @property
    def complete(self) -> bool:
        return self.ended and self.received == self.made


class StreamCalls(RuleBasedStateMachine):
    """Requests and responses in any order, and a writer that comes when it likes."""

    at_once: bool

    def __init__(self) -> None:
        super().__init__()
        self.call = SteppedStream(at_once=self.at_once)
        self.answers = self.call.answers
        self.asked: list[Asked] = []
        self.serial = 0
        self._read = 0

    # -- requests and responses

    @rule(model=MODELS, empty_final=st.booleans())
    def ask(self, model: str, empty_final: bool) -> None:
        refused = model in REFUSALS
        made: list[Received] = [REFUSALS[model]] if refused else []
        id = str(len(self.asked))
        self.asked.append(Asked(model, empty_final, made, ended=refused))
        self.call.ask(ask(model, id, empty_final=empty_final))

    @precondition(lambda self: self.running)
    @rule(choice=CHOICES, final=st.booleans())
    def send(self, choice: int, final: bool) -> None:
        """A response with none queued before it is written at once, if the transport allows it."""
        id = self._pick(choice)
        free = self.at_once and not self.answers.blocked and not self.answers.queued
        at_once = free and self._may_be_written(id)
        made = self._send(id, final)
        self._check_received()
        assert not at_once or made in self.asked[id].received or made not in self.asked[id].made

    @precondition(lambda self: self.running)
    @rule(choice=CHOICES, then=CHOICES, final=st.booleans())
    def send_when_another_is_taken(self, choice: int, then: int, final: bool) -> None:
        """As a producer that has waited for room, of the same request or of another."""
        other = self._pick(then)
        self.call.server.on_taken[str(self._pick(choice))] = lambda: self._send(other, final)

    @precondition(lambda self: self.running)
    @rule(choice=CHOICES)
    def end(self, choice: int) -> None:
        id = self._pick(choice)
        asked = self.asked[id]
        asked.ended = True
        if asked.ordered:
            asked.make(NONE)
        elif asked.empty_final:
            asked.make("end")
        self.call.server.streams[str(id)].end()

    @precondition(lambda self: self.running)
    @rule(choice=CHOICES)
    def fail(self, choice: int) -> None:
        id = self._pick(choice)
        self.asked[id].make("broken")
        self.asked[id].ended = True
        self.call.server.streams[str(id)].fail(InternalError("broken"))

    # -- the writer

    @precondition(lambda self: self.answers.queued and not self.answers.blocked)
    @precondition(lambda self: self.call.writing is None)
    @rule()
    def write_next(self) -> None:
        self.call.write_next()

    @precondition(lambda self: self.call.writing is not None)
    @rule()
    def finish_write(self) -> None:
        self.call.finish_write()

    @precondition(lambda self: self.at_once)
    @rule()
    def stall(self) -> None:
        self.call.stall()

    @precondition(lambda self: self.answers.blocked)
    @rule()
    def make_room(self) -> None:
        self.call.make_room()

    # -- invariants

    @invariant()
    def every_request_is_answered_in_order(self) -> None:
        self._check_received()
        self._check_that_no_answer_is_lost()
        self._check_open_answers()

    def _check_received(self) -> None:
        """Each request receives its own messages in order, and no others."""
        received = self.call.wire.received
        for id, what in received[self._read :]:
            asked = self.asked[int(id)]
            assert asked.ordered <= all(one.complete for one in self._ordered_before(int(id)))
            asked.received.append(what)
            assert asked.received == asked.made[: len(asked.received)]
        self._read = len(received)

    def _check_that_no_answer_is_lost(self) -> None:
        if self.idle:
            assert [id for id in range(len(self.asked)) if self._must_be_written(id)] == []

    def _check_open_answers(self) -> None:
        if not all(asked.complete for asked in self.asked):
            assert self.answers
        elif self.idle:
            assert not self.answers

    def teardown(self) -> None:
        """The client leaves: requests in flight are cancelled, and all regions released."""
        server = self.call.server
        server.on_taken.clear()
        running = sorted(map(str, self.running))
        self.answers.close()
        found = [str(id) for id, asked in enumerate(self.asked) if asked.model != "nope"]
        assert sorted(server.closed) == running
        assert sorted(server.regions.released) == sorted(found)

    # -- the expected state

    @property
    def idle(self) -> bool:
        """Whether the writer has nothing to do."""
        return not self.answers.queued and self.call.writing is None

    @property
    def running(self) -> list[int]:
        return [id for id, asked in enumerate(self.asked) if not asked.ended]

    def _pick(self, choice: int) -> int:
        return self.running[choice % len(self.running)]

    def _send(self, id: int, final: bool) -> int:
        """The number that was sent, unless the request was answered meanwhile."""
        asked = self.asked[id]
        self.serial += 1
        if asked.ended:
            return self.serial
        asked.make(self.serial)
        asked.ended = final
        made = self.serial  # sending may bring the next one
        self.call.answer(str(id), number(made, final=final))
        return made

    def _ordered_before(self, id: int) -> list[Asked]:
        return [asked for asked in self.asked[:id] if asked.ordered]

    def _may_be_written(self, id: int) -> bool:
        before = self._ordered_before(id) if self.asked[id].ordered else []
        return all(asked.complete for asked in before)

    def _must_be_written(self, id: int) -> bool:
        return self._may_be_written(id) and self.asked[id].received != self.asked[id].made


class ByTask(StreamCalls):
    """All messages are written by the writing task, one at a time."""

    at_once = False


class AtOnce(StreamCalls):
    """A response with none queued before it is written by its sender."""

    at_once = True


TestByTask = ByTask.TestCase
TestAtOnce = AtOnce.TestCase
TestByTask.settings = TestAtOnce.settings = settings(max_examples=examples(60), deadline=None)

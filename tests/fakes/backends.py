"""Backends that play a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fakes.values import make_response
from penstock.core.backend import Backend, InstanceContext
from penstock.core.request import InferenceRequest, InferenceResponse

InstallBackend = Callable[[str, object], None]
"""What the fixture `install_backend` is."""


def by_id(request: InferenceRequest) -> Any:
    return make_response(request.id)


@dataclass
class Script:
    """What a fake backend does, and what was done to it.

    `answer` makes the outcome of one request, and `outcomes`, when given, those of a whole batch.
    A batch waits until `gate` is open. `executed` names the instances that got the batches.
    """

    answer: Callable[[InferenceRequest], Any] = by_id
    outcomes: Callable[[Sequence[InferenceRequest]], Any] | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    batches: list[list[str]] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    contexts: list[InstanceContext] = field(default_factory=list)
    finalized: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def backend(self) -> type[FakeBackend]:
        return type("ScriptedBackend", (FakeBackend,), {"script": self})


class FakeBackend(Backend):
    """Plays a `Script`; subclasses change the rest."""

    script: ClassVar[Script]

    name = ""

    async def initialize(self, context: InstanceContext) -> None:
        self.script.contexts.append(context)
        self.name = context.name

    async def execute(self, requests: Sequence[InferenceRequest]) -> Any:
        self.script.batches.append([request.id for request in requests])
        self.script.executed.append(self.name)
        await self.script.gate.wait()
        if self.script.outcomes is not None:
            return self.script.outcomes(requests)
        return [self.script.answer(request) for request in requests]

    async def finalize(self) -> None:
        self.script.finalized += 1


class Tokens:
    """An async generator's worth of responses, and what became of it.

    Sends `count` of them, marked 0, 1, ...; then raises `error` if there is one. Without
    responses left it waits at `end` if it is given.
    """

    def __init__(
        self,
        count: int = 0,
        *,
        error: BaseException | None = None,
        end: asyncio.Event | None = None,
    ) -> None:
        self.made = 0
        self.closed = False
        self._count = count
        self._error = error
        self._end = end

    async def generate(self) -> AsyncIterator[InferenceResponse]:
        try:
            for number in range(self._count):
                self.made += 1
                yield make_response(number)
            if self._end is not None:
                await self._end.wait()
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True

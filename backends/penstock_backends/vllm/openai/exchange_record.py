"""`ExchangeRecord`: the generation of a traced exchange, in the timeline of that exchange."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Protocol

from penstock.backend import InferenceRequest, Timeline
from penstock_backends.language_model import GenerationRequest, record_of
from penstock_backends.vllm.inputs.sampling import BACKEND
from penstock_backends.vllm.request_record import RequestRecord

_FACTS: Final = ("gen_ai.", "penstock.llm.")


class Counting(Protocol):
    """A counter of the tokens of outputs."""

    def add(self, output: Any) -> None:
        """Count one output of vLLM."""

    def cut_off(self) -> None:
        """Note that the outputs have ended before the last one."""


class ExchangeRecord:
    """Notes the generation of an exchange; nothing where it makes several of them.

    A timeline has room for the times and tokens of one.
    """

    def __init__(self, request: InferenceRequest, timeline: Timeline) -> None:
        self._request = request
        self._timeline = timeline
        self._generations = 0

    def begin(self, sampling: Any) -> RequestRecord | None:
        """The record of one more generation, if there is none yet."""
        self._generations += 1
        request = self._request
        model = str(request.parameters.get("model", request.model_name))
        noted = record_of(request, BACKEND, model) if self.single else None
        if noted is None:
            self._forget()
            return None
        stream = sampling.output_kind.name == "DELTA"
        noted.asked(GenerationRequest("", stream=stream), sampling)
        record = RequestRecord(self._timeline, noted)
        record.prepare(sampling, stream=True)  # vLLM's application has said what it wants to see
        record.submitted()
        return record

    @property
    def single(self) -> bool:
        """Whether there is one generation so far."""
        return self._generations == 1

    def _forget(self) -> None:
        facts = self._timeline.facts
        for name in [name for name in facts if name.startswith(_FACTS)]:
            del facts[name]


RECORD: Final[ContextVar[ExchangeRecord | None]] = ContextVar("record", default=None)
"""The record of the exchange that is being answered, where that is traced."""


def exchange_record(request: InferenceRequest) -> ExchangeRecord | None:
    """The record of an exchange that is traced."""
    timeline = request.scope.timeline
    return None if timeline is None else ExchangeRecord(request, timeline)


def noting(count: Counting | None, sampling: Any) -> Counting | None:
    """The counter of outputs, which also notes them in the exchange's record if there is one."""
    exchange = RECORD.get()
    record = None if exchange is None else exchange.begin(sampling)
    if exchange is None or record is None:
        return count
    return _Noting(count, exchange, record)


class _Noting:
    """Counts outputs, and notes them as long as they are those of the only generation."""

    def __init__(
        self, count: Counting | None, exchange: ExchangeRecord, record: RequestRecord
    ) -> None:
        self._count = count
        self._exchange = exchange
        self._record = record

    def add(self, output: Any) -> None:
        """Count and note one output of vLLM."""
        if self._count is not None:
            self._count.add(output)
        if self._exchange.single:
            self._record.add(output)
            if output.finished:
                self._record.ended(output.outputs, finished=True)

    def cut_off(self) -> None:
        """Note the end of a generation that was cancelled, or has failed."""
        if self._exchange.single:
            self._record.ended((), finished=False)

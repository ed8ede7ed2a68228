"""`OpenAiGeneration`: one request of text at a server of OpenAI's API, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import orjson

from penstock.backend import InferenceError, InferenceRequest, InternalError, UnavailableError
from penstock_backends.language_model import (
    Answer,
    Delivery,
    EngineStatistics,
    GenerationRequest,
    GenerationTimes,
    StreamInterval,
    exemplar_id,
    record_of,
    tenant_label,
    usage_of,
)
from penstock_backends.remote.call_failures import error_of
from penstock_backends.remote.fleet import Fleet
from penstock_backends.remote.grpc_connection import CallStatus
from penstock_backends.remote.http_connection import HttpCall
from penstock_backends.remote.http_endpoint import HttpEndpoint
from penstock_backends.remote.openai_answers import (
    Events,
    Failure,
    connection_failed,
    failure_text,
)
from penstock_backends.remote.openai_body import TITLE, read_body
from penstock_backends.remote.settings import RemoteSettings

_MOST_HELD = 256 << 10
"""Characters that wait for a slow reader before no more is read."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The model that generations ask for: where it is, and what is counted of them."""

    settings: RemoteSettings
    fleet: Fleet[HttpEndpoint]
    statistics: EngineStatistics
    interval: StreamInterval | None


class _Delivery(Delivery):
    """A delivery that tells when its reader has taken something."""

    on_taken: Callable[[], None] | None = None

    def _taken(self, count: int) -> None:
        super()._taken(count)
        if self.on_taken is not None:
            self.on_taken()


class OpenAiGeneration(HttpCall):
    """Asks one address, and another only as long as nothing was answered."""

    def __init__(
        self, model: Asked, request: InferenceRequest, generation: GenerationRequest
    ) -> None:
        settings = model.settings
        self._model = model
        self._request = request
        self._stream = generation.stream
        self._chat = settings.chat
        self._body, given = read_body(generation, settings.model, chat=settings.chat)
        count = given.get("n", 1)
        record, usage = record_of(request, TITLE, settings.model), usage_of(request)
        if record is not None:
            known = SimpleNamespace(**({"max_tokens": None, "n": 1} | given))
            record.asked(generation, known)
        self._times = GenerationTimes(
            model.statistics,
            0,
            exemplar_id(request),
            record=record,
            usage=usage,
            candidates=count,
            tenant=tenant_label(request),
            waited=request.scope.waited,
        )
        self.delivery = _Delivery(
            Answer(generation, 0, count),
            self._left,
            merge=generation.merge,
            record=record,
            times=self._times,
            interval=model.interval,
        )
        self.delivery.on_taken = self._resume
        self._reasons: list[str | None] = [None] * count
        self._endpoint: HttpEndpoint | None = None
        self._attempts = 0
        self._begun = self._paused = False
        self._failure: Failure | None = None
        self._events = Events()
        self._whole = bytearray()
        self._size = self._held = 0
        self._usage: dict[str, Any] = {}

    def begin(self) -> None:
        """Send it to an address; raises `UnavailableError` where none is up."""
        model, timeline = self._model, self._request.scope.timeline
        endpoint = self._endpoint = model.fleet.pick()
        self._attempts += 1
        fields = [(b"content-type", b"application/json")]
        if timeline is not None:
            timeline.facts["remote.address"] = str(endpoint.address)
            for name, value in timeline.context.headers.items():
                fields.append((name.encode(), value.encode("latin-1", "replace")))
        if self._attempts == 1:
            model.statistics.requests += 1
            self._times.queued()
        model.statistics.running += 1
        path = "/chat/completions" if self._chat else "/completions"
        endpoint.start(self, "POST", path, fields, self._body)

    # -- HttpCall -----------------------------------------------------------------------------

    def begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._begun = True
        if status != 200:
            self._failure = Failure(status, headers)
            return
        self._times.scheduled()
        kind = headers.get(b"content-type", b"")
        if self._stream and not kind.startswith(b"text/event-stream"):
            self._give_up(InternalError(f"{self._where()}: it does not stream, but sends {kind!r}"))

    def received(self, data: bytes) -> None:
        if self._failure is not None:
            self._failure.add(data)
            return
        self._size += len(data)
        if self._size > self._model.settings.max_response:
            self._give_up(InternalError(f"{self._where()}: more than max_response_bytes"))
        elif not self._stream:
            self._whole += data
        else:
            try:
                for event in self._events.feed(data):
                    self._take(event)
            except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                self._give_up(InternalError(f"{self._where()}: an event that is none: {error}"))

    def ended(self, reason: str, *, untouched: bool = False) -> None:
        status = CallStatus(0)
        if reason:
            status = connection_failed(reason, untouched=untouched)
        elif self._failure is not None:
            status = self._failure.end()
        endpoint, self._endpoint = self._endpoint, None
        assert endpoint is not None
        self._model.statistics.running -= 1
        self._model.fleet.ended(endpoint, status)
        if self.delivery.stream.ended:
            return
        if status.code:
            if not self._again(endpoint, status):
                self._fail(error_of(status, endpoint.address))
        elif self._stream:
            self._finish(endpoint)
        else:
            self._take_whole(endpoint)

    def _again(self, endpoint: HttpEndpoint, status: CallStatus) -> bool:
        """Begin anew, where nothing was answered: whether that was possible."""
        model = self._model
        answered = self._begun and self._failure is None
        if answered or self._attempts > model.settings.retries:
            return False
        if not model.fleet.may_retry(endpoint, status):
            return False
        model.fleet.retries += 1
        self.connection, self._failure, self._begun = None, None, False
        try:
            self.begin()
        except UnavailableError:
            return False
        return True

    # -- the answer ---------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        """Take the data of an event."""
        if data == b"[DONE]" or self.delivery.stream.ended:
            return
        event = orjson.loads(data)
        if "error" in event:
            self._give_up(InternalError(f"{self._where()}: {failure_text(data)}"))
            return
        self._usage = event.get("usage") or self._usage
        fresh = 0
        for choice in event.get("choices", ()):
            fresh += self._choose(choice)
        if fresh:
            self._model.statistics.generation_tokens += fresh
            self._times.output(fresh, finished=False)
            self.delivery.push()
            self._pause()

    def _choose(self, choice: dict[str, Any]) -> int:
        """Take one of the texts: 1 if there is more of it, which is a token as a rule."""
        index = choice.get("index", 0)
        candidate = self.delivery.answer.candidates[index]
        part = choice.get("delta" if self._stream else "message") if self._chat else choice
        text = (part or {}).get("content" if self._chat else "text") or ""
        reasoning = (part or {}).get("reasoning_content") if self._chat else None
        if reasoning and self.delivery.answer.wanted.reasoning_text:
            candidate.reasoning.append(reasoning)
        self._reasons[index] = choice.get("finish_reason") or self._reasons[index]
        candidate.stop_reason = choice.get("stop_reason") or candidate.stop_reason
        candidate.add(str(text), 0)
        self._held += len(text)
        return 1 if text or reasoning else 0

    def _take_whole(self, endpoint: HttpEndpoint) -> None:
        try:
            answer = orjson.loads(self._whole)
            self._usage = answer.get("usage") or {}
            for choice in answer["choices"]:
                self._choose(choice)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            self._fail(InternalError(f"remote {endpoint.address}: an answer that is none: {error}"))
            return
        self._finish(endpoint)

    def _finish(self, endpoint: HttpEndpoint) -> None:
        """Send the last response, with the counts that are known only now."""
        if None in self._reasons:
            text = f"remote {endpoint.address}: the answer ended before its end"
            self._fail(UnavailableError(text))
            return
        answer, statistics = self.delivery.answer, self._model.statistics
        prompt, made = self._count("prompt_tokens"), self._count("completion_tokens")
        answer.prompt_tokens = prompt
        details = self._usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(cached := details.get("cached_tokens"), int):
            answer.cached_tokens = cached
        for candidate, reason in zip(answer.candidates, self._reasons, strict=True):
            candidate.finish_reason = reason
        answer.candidates[0].tokens = made
        if prompt:
            self._times.has_prompt(prompt)
        more = max(made - self._times.tokens, 0)
        statistics.prefill_tokens += prompt
        statistics.generation_tokens += more
        self._times.output(more, finished=True)
        self.delivery.push()

    def _count(self, name: str) -> int:
        found = self._usage.get(name)
        return found if isinstance(found, int) and 0 <= found < 1 << 31 else 0

    # -- the reader ---------------------------------------------------------------------------

    def _pause(self) -> None:
        if self.delivery.stream.backlog == 0:
            self._held = 0
        elif self._held > _MOST_HELD and self.connection is not None:
            self._paused = True
            self.connection.pause()

    def _resume(self) -> None:
        self._held = 0
        if self._paused and self.connection is not None:
            self._paused = False
            self.connection.resume()

    def _left(self) -> None:
        self._model.statistics.cancelled += 1
        self._cancel()

    def _give_up(self, error: InferenceError) -> None:
        self._fail(error)
        self._cancel()

    def _fail(self, error: InferenceError) -> None:
        self._model.statistics.failed += 1
        self.delivery.fail(error)

    def _cancel(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            self._model.statistics.running -= 1
            endpoint.cancel(self)

    def _where(self) -> str:
        return "remote" if self._endpoint is None else f"remote {self._endpoint.address}"

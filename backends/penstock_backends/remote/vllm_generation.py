"""`VllmGeneration`: one request at an engine that takes tokens and gives tokens."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from google.protobuf.message import DecodeError

from penstock.backend import (
    InferenceError,
    InferenceRequest,
    InternalError,
    UnavailableError,
)
from penstock_backends.language_model import (
    Answer,
    Delivery,
    Detokenizer,
    EngineStatistics,
    GenerationRequest,
    GenerationTimes,
    Logprobs,
    StopStrings,
    StreamInterval,
    exemplar_id,
    record_of,
    tenant_label,
    usage_of,
)
from penstock_backends.remote.call_failures import error_of
from penstock_backends.remote.fleet import Fleet
from penstock_backends.remote.grpc_connection import CallStatus, GrpcCall, Received
from penstock_backends.remote.grpc_endpoint import GrpcEndpoint
from penstock_backends.remote.kserve_calls import Heads, timeout_field
from penstock_backends.remote.settings import RemoteSettings
from penstock_backends.remote.vllm_messages import (
    TITLE,
    EngineOutput,
    Service,
    TokenLogprobs,
    read_sampling,
    request_of,
)


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine that generations ask. `abort` tells an address that nobody wants a request."""

    service: Service
    pb: Any
    settings: RemoteSettings
    fleet: Fleet[GrpcEndpoint]
    heads: Heads
    statistics: EngineStatistics
    interval: StreamInterval | None
    tokenizer: Any
    abort: Callable[[GrpcEndpoint, str], None]
    now: Callable[[], float]


class _Text:
    """The text of one of the answers, from its tokens."""

    def __init__(self, engine: Engine, sampling: Mapping[str, Any]) -> None:
        keep, stops = sampling.get("include_stop_str_in_output", False), sampling.get("stop")
        self.stops = StopStrings(stops, keep=keep) if stops else None
        self.seen = 0
        self.detokenizer = Detokenizer(
            engine.tokenizer, skip_special_tokens=sampling["skip_special_tokens"]
        )

    def feed(self, tokens: Sequence[int]) -> str:
        """The text that tokens complete."""
        self.seen += len(tokens)
        text = "".join([self.detokenizer.step(token) for token in tokens])
        return text if self.stops is None else self.stops.feed(text)

    def flush(self) -> str:
        """The text that was held back, at the end."""
        return "" if self.stops is None else self.stops.flush()


class VllmGeneration(GrpcCall):
    """Asks one address, and another only as long as nothing was answered.

    A reader that leaves has the request aborted: the engine may not notice the end of the call.
    """

    def __init__(
        self,
        engine: Engine,
        request: InferenceRequest,
        generation: GenerationRequest,
    ) -> None:
        self._engine = engine
        self._request = request
        wanted = self._wanted = generation.wanted
        self._asks_logprobs = wanted.logprobs or wanted.cumulative_logprob
        sampling = read_sampling(generation)
        self._asked = request_of(engine.pb, engine.service, sampling)
        if engine.settings.names_model and "model" in self._asked.DESCRIPTOR.fields_by_name:
            self._asked.model = engine.settings.model
        self._call = engine.service.call("Generate")
        self._answer = getattr(engine.pb, self._call.answer)
        self._prompt: Sequence[int] = ()
        self._prefix = b""
        count: int = sampling["n"]
        record = record_of(request, TITLE, engine.settings.model)
        if record is not None:
            record.asked(generation, SimpleNamespace(**({"max_tokens": None} | sampling)))
        self._times = GenerationTimes(
            engine.statistics,
            0,
            exemplar_id(request),
            record=record,
            usage=usage_of(request),
            candidates=count,
            tenant=tenant_label(request),
            waited=request.scope.waited,
        )
        self.delivery = Delivery(
            Answer(generation, 0, count),
            self._left,
            merge=generation.merge,
            record=record,
            times=self._times,
            interval=engine.interval,
        )
        self._texts = [_Text(engine, sampling) for _ in range(count)]
        self._sums = [0.0] * count
        self._endpoint: GrpcEndpoint | None = None
        self._attempts = 0
        self._begun = False
        self._id = ""

    def begin(self, prompt: Sequence[int]) -> None:
        """Send it with its prompt; raises `UnavailableError` where no address is up."""
        self._prompt = prompt
        if count := self._engine.settings.prefix_tokens:
            self._prefix = array("q", prompt[:count]).tobytes()
        self.delivery.answer.prompt_tokens = len(prompt)
        self._times.has_prompt(len(prompt))
        attrgetter(self._engine.service.tokens)(self._asked).extend(prompt)
        for text in self._texts:
            text.detokenizer.begin(prompt)
        self._ask()

    def _ask(self) -> None:
        engine, scope = self._engine, self._request.scope
        endpoint = self._endpoint = engine.fleet.pick(prefix=self._prefix)
        self._attempts += 1
        self._id = uuid4().hex  # an engine takes each but once
        if self._attempts == 1:
            engine.statistics.requests += 1
            engine.statistics.prefill_tokens += len(self._prompt)
            self._times.queued()
        engine.statistics.running += 1
        fields = []
        if scope.deadline is not None:
            fields.append(timeout_field(scope.deadline - engine.now()))
        if scope.timeline is not None:
            scope.timeline.facts["remote.address"] = str(endpoint.address)
            for name, value in scope.timeline.context.headers.items():
                fields.append((name.encode(), value.encode("latin-1", "replace")))
        setattr(self._asked, engine.service.id, self._id)
        head = engine.heads.head(endpoint, self._call.path, fields)
        endpoint.start(self, head, self._asked.SerializeToString())

    # -- GrpcCall -----------------------------------------------------------------------------

    def received(self, message: Received) -> None:
        if self.delivery.stream.ended:
            return
        if not self._begun:
            self._begun = True
            self._times.scheduled()
        try:
            answer = self._answer.FromString(bytes(message))
            for output in self._engine.service.outputs(answer, self._texts[0].seen):
                if output.finish_reason is None:
                    self._add(output, output.tokens)
                    self.delivery.push()
                else:
                    self._complete(output)
        except (DecodeError, IndexError, ValueError, OverflowError) as error:
            self._give_up(InternalError(f"the remote's answer is none: {error}"))

    def ended(self, status: CallStatus) -> None:
        endpoint, self._endpoint = self._endpoint, None
        assert endpoint is not None
        self._engine.statistics.running -= 1
        self._engine.fleet.ended(endpoint, status)
        if self.delivery.stream.ended:
            return
        if status.code and self._again(endpoint, status):
            return
        if status.code:
            self._fail(error_of(status, endpoint.address))
        else:
            text = f"remote {endpoint.address}: the answer ended before its end"
            self._fail(UnavailableError(text))

    def _again(self, endpoint: GrpcEndpoint, status: CallStatus) -> bool:
        engine = self._engine
        if self._begun or self._attempts > engine.settings.retries:
            return False
        if not engine.fleet.may_retry(endpoint, status):
            return False
        engine.fleet.retries += 1
        self.connection = None
        try:
            self._ask()
        except UnavailableError:
            return False
        return True

    # -- the answer ---------------------------------------------------------------------------

    def _complete(self, end: EngineOutput) -> None:
        """The end of one answer, with its last tokens or all of them; some have come before."""
        text = self._texts[end.index]
        self._add(end, end.tokens[text.seen :])
        candidate = self.delivery.answer.candidates[end.index]
        candidate.add(text.flush(), 0)
        if end.stop_reason is not None:
            candidate.stop_reason = end.stop_reason
        if end.finish_reason in ("abort", "error"):
            self._give_up(UnavailableError(f"the remote ended the request: {end.finish_reason}"))
            return
        if text.seen and self._asks_logprobs and candidate.logprobs is None:
            self._give_up(InternalError("the remote has told no log probabilities"))
            return
        candidate.finish_reason = end.finish_reason
        self.delivery.push()

    def _add(self, output: EngineOutput, tokens: Sequence[int]) -> None:
        answer, statistics = self.delivery.answer, self._engine.statistics
        candidate, text = answer.candidates[output.index], self._texts[output.index]
        answer.cached_tokens = output.cached_tokens
        candidate.add(text.feed(tokens), len(tokens))
        if self._wanted.token_ids:
            candidate.token_ids += tokens
        if output.logprobs:
            self._add_logprobs(output.index, output.logprobs)
        if text.stops is not None and text.stops.found is not None:
            candidate.stop_reason = text.stops.found
        statistics.generation_tokens += len(tokens)
        done = output.finish_reason is not None and all(
            other.finish_reason is not None for other in answer.candidates if other is not candidate
        )
        self._times.output(len(tokens), finished=done)

    def _add_logprobs(self, index: int, given: Sequence[TokenLogprobs]) -> None:
        places: list[Logprobs] = []
        for token, value, top in given:
            self._sums[index] += value
            place = {token: self._told(token, value, 0)}
            for rank, (other, its) in enumerate(top, 1):
                place[other] = self._told(other, its, rank)
            places.append(place)
        candidate = self.delivery.answer.candidates[index]
        candidate.add_logprobs(places, self._sums[index])

    def _told(self, token: int, value: float, rank: int) -> dict[str, Any]:
        text = self._engine.tokenizer.decode([token], skip_special_tokens=False)
        return {"logprob": value, "rank": rank or None, "decoded_token": text}

    # -- the reader ---------------------------------------------------------------------------

    def _left(self) -> None:
        self._engine.statistics.cancelled += 1
        self._cancel()

    def _give_up(self, error: InferenceError) -> None:
        self._fail(error)
        self._cancel()

    def _fail(self, error: InferenceError) -> None:
        self._engine.statistics.failed += 1
        self.delivery.fail(error)

    def _cancel(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            self._engine.statistics.running -= 1
            endpoint.cancel(self)
            self._engine.abort(endpoint, self._id)

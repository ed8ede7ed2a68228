"""The generate endpoints: tensors as plain JSON members, one response or server-sent events."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Timeline
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.inference.event_stream import EventStream
from penstock.gateway.inference.generate_codec import (
    Answer,
    answer_of,
    answer_of_large,
    decode_generate,
    failure,
)
from penstock.gateway.json.text import dump_sorted
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.observability.load_header import load_header
from penstock.gateway.observability.traced_request import (
    begin_timeline,
    ending,
    response_complete,
    send_recorded,
)
from penstock.gateway.replies import Reply, reply
from penstock.gateway.router import (
    Target,
    closed_on_disconnect,
    fill_scope,
    forwarded_headers,
)
from penstock.server.faces import Inference
from penstock.settings import HttpSettings

_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that"
    " generates various number of responses"
)


class GenerateEndpoints:
    """Answers `POST .../generate` and `POST .../generate_stream`."""

    def __init__(self, server: Inference, settings: HttpSettings, bodies: JsonBodies) -> None:
        self._server = server
        self._bodies = bodies
        self._keep_alive = settings.event_keep_alive_secs
        self._forward = forwarded_headers(
            settings.header_forward_pattern, settings.restrictions, server.access
        )

    async def generate(self, call: HttpCall, target: Target) -> Reply | None:
        """Reply with the only response as a JSON object; 400 for none and for several."""
        request, timeline = await self._read(call, target)
        with nullcontext() if timeline is None else ending(timeline):
            stream = self._server.infer(request)
            with closed_on_disconnect(stream, call):
                answers = await _two_answers(request, stream, timeline)
        answer = reply(dump_sorted({"error": _NOT_ONE}), 400)
        if len(answers) == 1:
            answer = reply(answers[0].json, answers[0].status)
        answer.fields += load_header(call, self._server)
        if timeline is None:
            return answer
        send_recorded(call, answer, timeline, stream.error)
        return None

    async def generate_stream(self, call: HttpCall, target: Target) -> None:
        """Stream one server-sent event per response."""
        if "last-event-id" in call.headers:
            raise InvalidRequestError(
                "a stream of events cannot be resumed: send the request anew, without the header"
                " 'Last-Event-ID'"
            )
        request, timeline = await self._read(call, target)
        with nullcontext() if timeline is None else ending(timeline):
            stream = self._server.infer(request)
        waits = self._server.resident(target.model) is False
        events = EventStream(call, request, stream, timeline, self._server, self._keep_alive)
        events.start(waits=waits)

    async def _read(
        self, call: HttpCall, target: Target
    ) -> tuple[InferenceRequest, Timeline | None]:
        metadata = await self._server.model_metadata(target.model, target.version)
        if call.headers.get("content-encoding", "") not in ("", "identity"):
            raise InvalidRequestError("Unsupported content-encoding, only 'identity' is supported.")
        request_id = call.headers.get("triton-request-id", "")
        decode = partial(decode_generate, metadata, target.version, request_id)
        inference = await self._bodies.read(call, decode)
        if self._forward is not None:
            inference = self._forward.added_to(inference, call)
        fill_scope(inference.scope, call, self._server.tenants)
        call.inference = inference
        return inference, begin_timeline(self._server.tracer, call, inference, call.opened)


async def _two_answers(
    request: InferenceRequest, stream: ResponseStream, timeline: Timeline | None
) -> list[Answer]:
    """The first two answers of a stream, or fewer; an error is the last of them."""
    answers: list[Answer] = []
    while len(answers) < 2:
        try:
            response = await anext(stream, None)
        except InferenceError as error:
            response_complete(timeline)
            answers.append(failure(error))
            break
        response_complete(timeline)
        if response is None:
            break
        version = stream.model_version
        answer = answer_of(request, version, response)
        answers.append(answer or await answer_of_large(request, version, response))
    return answers

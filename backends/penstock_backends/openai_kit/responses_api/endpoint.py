"""POST /v1/responses: text and functions, without state; and the tokens of their prompts."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, Final

from openai.types.responses.response_create_params import ResponseCreateParamsBase

from penstock.backend import InferenceError
from penstock_backends.openai_kit.asgi import Answer, EventStream, Exchange, event_bytes
from penstock_backends.openai_kit.conversation import Conversation, Conversations
from penstock_backends.openai_kit.errors import ApiError
from penstock_backends.openai_kit.generator import Generator, Piece, Position, Steps
from penstock_backends.openai_kit.json_body import BodyReader, read_object
from penstock_backends.openai_kit.logprobs import chat_form
from penstock_backends.openai_kit.messages import check_counts
from penstock_backends.openai_kit.model_calls import close, submit
from penstock_backends.openai_kit.responses_api.chat_request import (
    as_chat,
    in_names_of_responses,
    whole_request,
)
from penstock_backends.openai_kit.responses_api.output_items import Event, OutputItems, sse
from penstock_backends.openai_kit.sampling import refuse_ineffective
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.tool_choice import ToolPlan
from penstock_backends.openai_kit.usage import Usage

_ECHOED: Final = ("instructions", "max_output_tokens", "metadata", "temperature", "text", "top_p")


class ResponsesEndpoint:
    """Answers requests of the Responses API by chats."""

    def __init__(self, generator: Generator, settings: OpenAiSettings) -> None:
        self._generator = generator
        self._conversations = Conversations(generator, settings)
        ignore = settings.unknown_fields == "ignore"
        self.reader = BodyReader(ResponseCreateParamsBase, ("stream",), ignore_unknown=ignore)

    async def __call__(self, exchange: Exchange) -> Answer:
        """Answer one request."""
        fields = _read(self.reader, exchange, self._generator)
        chat = as_chat(fields)
        with _names(chat.places):
            conversation = await self._conversations.prepare(chat.fields, exchange.request_id)
            streams = await submit(
                self._generator, [conversation.generation], exchange, conversation.renamed
            )
        answer = _ResponseAnswer(self._generator, conversation, fields, exchange.request_id)
        if conversation.generation.whole:
            return await answer.whole(streams[0])
        return EventStream(answer.events(streams[0]), partial(close, streams))

    async def input_tokens(self, exchange: Exchange) -> Answer:
        """POST /v1/responses/input_tokens: count the tokens of a response's prompt.

        It takes the fields of a response, that those who ask for one can send them as they are.
        """
        chat = as_chat(_read(self.reader, exchange, self._generator))
        tools = chat.fields.get("tools")
        with _names(chat.places):
            plan = ToolPlan("auto" if tools else "none", tools)
            prompt = await self._conversations.prompt(chat.fields, plan)
        answer = {"object": "response.input_tokens", "input_tokens": len(prompt.tokens)}
        return json.dumps(answer).encode()


def _read(reader: BodyReader, exchange: Exchange, generator: Generator) -> dict[str, Any]:
    """The fields of a request, checked and whole; raises `ApiError`."""
    given = read_object(exchange.body)
    with _names():
        check_counts(given.get("input"), generator)
    fields = reader.check(whole_request(given), exchange.parameters)
    refuse_ineffective(fields)
    return fields


@contextmanager
def _names(places: Sequence[tuple[str, str]] = ()) -> Iterator[None]:
    """Errors of a chat in the names of a response's request; `places` are its messages'."""
    try:
        yield
    except ApiError as error:
        raise in_names_of_responses(error, places) from None


class _ResponseAnswer:
    """One answer, whole or by events."""

    def __init__(
        self,
        generator: Generator,
        conversation: Conversation,
        fields: Mapping[str, Any],
        request_id: str,
    ) -> None:
        self._generator = generator
        self._fields = fields
        self._parser = conversation.parser()
        self._usage = Usage.of(conversation.generation)
        self._items = OutputItems()
        self._logprobs: list[Position] = []
        self._reason = "stop"
        self._reasoning = ""
        self._id = f"resp_{request_id}"
        self._created = int(time.time())

    async def whole(self, steps: Steps) -> bytes:
        """The response as one document."""
        async with aclosing(steps):
            async for step in steps:
                self._usage.add(step)
                for piece in step.pieces:
                    list(self._grown(piece))
        list(self._ended())
        return json.dumps(self._response(self._status), ensure_ascii=False).encode()

    async def events(self, steps: Steps) -> AsyncGenerator[bytes, None]:
        """The response by events; those of one step travel together."""
        yield event_bytes("".join(map(sse, self._begun())))
        try:
            async with aclosing(steps):
                async for step in steps:
                    self._usage.add(step)
                    text = "".join(sse(event) for one in step.pieces for event in self._grown(one))
                    if text:
                        yield event_bytes(text)
        except InferenceError as error:
            yield event_bytes(sse(self._failed(error)))
            return
        yield event_bytes("".join(map(sse, self._ended())))

    @property
    def _status(self) -> str:
        return "incomplete" if self._reason == "length" else "completed"

    def _begun(self) -> Iterator[Event]:
        for kind in ("response.created", "response.in_progress"):
            yield self._items.event(kind, response=self._response("in_progress"))

    def _grown(self, piece: Piece) -> Iterator[Event]:
        """The events of new text, with the log probabilities that wait for content."""
        self._logprobs.extend(piece.logprobs or ())
        deltas = [self._parser.feed(piece.text)]
        if piece.finish_reason is not None:
            self._reason = piece.finish_reason
            deltas.append(self._parser.flush())
        for delta in deltas:
            self._reasoning += delta.reasoning
            logprobs = []
            if delta.content:
                top = self._fields.get("top_logprobs", 0)
                logprobs = chat_form(self._logprobs, top)["content"]
                self._logprobs = []
            yield from self._items.add(delta, logprobs)

    def _ended(self) -> Iterator[Event]:
        yield from self._items.close(self._status)
        response = self._response(self._status)
        yield self._items.event(f"response.{self._status}", response=response)

    def _failed(self, error: InferenceError) -> Event:
        failure = {"code": "server_error", "message": str(error)}
        response = {**self._response("failed"), "error": failure}
        return self._items.event("response.failed", response=response)

    def _response(self, status: str) -> dict[str, Any]:
        fields = self._fields
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": fields.get("model", self._generator.facts.name),
            "output": list(self._items.done),
            "parallel_tool_calls": fields.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "store": False,
            "tool_choice": fields.get("tool_choice", "auto"),
            "tools": fields.get("tools", []),
            "usage": None if status == "in_progress" else self._usage_object(),
            **{name: fields.get(name) for name in _ECHOED if name in fields},
        }

    def _usage_object(self) -> dict[str, Any] | None:
        if not self._usage.counted:
            return None
        usage = self._usage
        return {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens": usage.generated,
            "output_tokens_details": {"reasoning_tokens": self._thought()},
            "total_tokens": usage.prompt + usage.generated,
        }

    def _thought(self) -> int:
        """Tokens of the reasoning."""
        if not self._reasoning:
            return 0
        tokenizer = self._generator.prompts.text_tokenizer
        return len(tokenizer.encode(self._reasoning, add_special_tokens=False).ids)

"""POST /v1/chat/completions."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from json.encoder import encode_basestring
from typing import Any, Final

from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from penstock_backends.openai_kit.asgi import Answer, EventStream, Exchange, event_bytes
from penstock_backends.openai_kit.conversation import (
    TEMPLATE_FIELDS,
    Conversation,
    Conversations,
)
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.generator import Generator, Piece, Position, Steps
from penstock_backends.openai_kit.json_body import BodyReader, read_object
from penstock_backends.openai_kit.logprobs import chat_form
from penstock_backends.openai_kit.messages import check_counts
from penstock_backends.openai_kit.model_calls import WholeAnswer, close, collect, submit
from penstock_backends.openai_kit.parsers.answer_parts import AnswerDelta, AnswerParser
from penstock_backends.openai_kit.sampling import FURTHER_FIELDS
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.usage import Usage, UsageReports

DONE: Final = b"data: [DONE]\n\n"


class ChatEndpoint:
    """Answers chats."""

    def __init__(self, generator: Generator, settings: OpenAiSettings) -> None:
        self._generator = generator
        self._conversations = Conversations(generator, settings)
        self.reader = BodyReader(
            CompletionCreateParamsBase,
            ("stream", *FURTHER_FIELDS, *TEMPLATE_FIELDS),
            ignore_unknown=settings.unknown_fields == "ignore",
        )

    async def __call__(self, exchange: Exchange) -> Answer:
        """Answer one chat."""
        given = read_object(exchange.body)
        check_counts(given.get("messages"), self._generator)
        fields = self.reader.check(given, exchange.parameters)
        check_stream_options(fields)
        conversation = await self._conversations.prepare(fields, exchange.request_id)
        head = {
            "id": f"chatcmpl-{exchange.request_id}",
            "created": int(time.time()),
            "model": fields["model"],
        }
        streams = await submit(
            self._generator, [conversation.generation], exchange, conversation.renamed
        )
        if conversation.generation.whole:
            return await _whole(conversation, streams[0], head, fields)
        events = _ChatEvents(conversation, head, fields)
        return EventStream(events.run(streams[0]), partial(close, streams))


def check_stream_options(fields: Mapping[str, Any]) -> None:
    """Refuse options of a stream where none is asked for, in Triton's words (OA-13)."""
    if "stream_options" in fields and not fields.get("stream", False):
        text = "`stream_options` can only be used when `stream` is True"
        refuse_field("stream_options", text)


async def _whole(
    conversation: Conversation, steps: Steps, head: Mapping[str, Any], fields: Mapping[str, Any]
) -> bytes:
    usage = Usage.of(conversation.generation)
    answers = await collect(steps, conversation.count, usage)
    choices = [_choice(conversation, index, answer, fields) for index, answer in enumerate(answers)]
    document = {**head, "object": "chat.completion", "choices": choices, **usage.member()}
    return json.dumps(document, ensure_ascii=False).encode()


def _choice(
    conversation: Conversation, index: int, answer: WholeAnswer, fields: Mapping[str, Any]
) -> dict[str, Any]:
    parser = conversation.parser()
    message = whole_message([parser.feed(answer.text), parser.flush()])
    choice = {
        "index": index,
        "message": message,
        "logprobs": (
            chat_form(answer.logprobs, fields.get("top_logprobs", 0))
            if fields.get("logprobs")
            else None
        ),
        "finish_reason": finish_reason(answer.finish_reason, conversation, parser),
        "stop_reason": answer.stop_reason,
    }
    if conversation.generation.token_ids:
        choice["token_ids"] = answer.token_ids
    return choice


def whole_message(deltas: list[AnswerDelta]) -> dict[str, Any]:
    """The message that deltas come to, put together."""
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        for call in delta.calls:
            if call.id is not None:
                function = {"name": call.name, "arguments": call.arguments}
                calls.append({"id": call.id, "type": "function", "function": function})
            else:
                calls[call.index]["function"]["arguments"] += call.arguments
    content = "".join(delta.content for delta in deltas)
    reasoning = "".join(delta.reasoning for delta in deltas)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content if content or not calls else None,
        "refusal": None,
    }
    if reasoning:
        message["reasoning"] = message["reasoning_content"] = reasoning
    return {**message, "tool_calls": calls} if calls else message


def finish_reason(reason: str, conversation: Conversation, parser: AnswerParser) -> str:
    """Why an answer ended, in OpenAI's words: a named call ends with `stop`."""
    called = parser.calls and conversation.plan.way in ("auto", "required")
    return "tool_calls" if called and reason == "stop" else reason


def event_head(members: Mapping[str, Any]) -> str:
    """The constant beginning of the events of a stream, up to the first of their choices."""
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return f'data: {text[:-1]},"choices":['


class _ChatEvents:
    """The events of one streamed chat."""

    def __init__(
        self, conversation: Conversation, head: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> None:
        self._conversation = conversation
        self._usage = Usage.of(conversation.generation)
        self._reports = UsageReports(fields.get("stream_options"))
        self._parsers = [conversation.parser() for _ in range(conversation.count)]
        self._begun = [False] * conversation.count
        self._with_logprobs = bool(fields.get("logprobs"))
        self._top = fields.get("top_logprobs", 0)
        self._logprobs: list[list[Position]] = [[] for _ in self._parsers]
        self._head = event_head({**head, "object": "chat.completion.chunk"})

    async def run(self, steps: Steps) -> AsyncGenerator[bytes, None]:
        """All events; those of one step travel together."""
        async with aclosing(steps):
            async for step in steps:
                self._usage.add(step)
                text = "".join(self._events(piece) for piece in step.pieces)
                if text:
                    yield event_bytes(text)
        yield self._last()

    def _events(self, piece: Piece) -> str:
        """The events of new text of one answer."""
        text = ""
        if not self._begun[piece.answer]:
            self._begun[piece.answer] = True
            text = self._event(piece.answer, '{"role":"assistant","content":""}', "null")
        parser = self._parsers[piece.answer]
        if piece.logprobs:
            self._logprobs[piece.answer].extend(piece.logprobs)
        text += self._delta_event(piece, parser.feed(piece.text))
        if piece.finish_reason is None:
            return text
        text += self._delta_event(piece, parser.flush(), last=True)
        reason = finish_reason(piece.finish_reason, self._conversation, parser)
        ending = f'"{reason}","stop_reason":{json.dumps(piece.stop_reason)}'
        return text + self._event(piece.answer, "{}", ending)

    def _delta_event(self, piece: Piece, delta: AnswerDelta, *, last: bool = False) -> str:
        """The events of a delta; log probabilities wait for one to travel with."""
        waiting = last and self._logprobs[piece.answer]
        with_ids = piece.token_ids and not last
        if delta.empty and not waiting and not with_ids:
            return ""
        more = f',"token_ids":{json.dumps(list(piece.token_ids))}' if with_ids else ""
        *before, text = _deltas(delta)
        events = "".join(self._event(piece.answer, one, "null") for one in before)
        return events + self._event(piece.answer, text, "null" + more)

    def _event(self, index: int, delta: str, ending: str) -> str:
        probabilities = "null"
        if self._with_logprobs and self._logprobs[index]:
            form = chat_form(self._logprobs[index], self._top)
            probabilities = json.dumps(form, ensure_ascii=False)
            self._logprobs[index] = []
        return (
            f'{self._head}{{"index":{index},"delta":{delta},"logprobs":{probabilities},'
            f'"finish_reason":{ending}}}]{self._reports.tail([self._usage])}'
        )

    def _last(self) -> bytes:
        if not (self._reports.at_end and self._usage.counted):
            return DONE
        usage = json.dumps(self._usage.plain())
        return f'{self._head}],"usage":{usage}}}\n\n'.encode() + DONE


def _deltas(delta: AnswerDelta) -> list[str]:
    """The deltas to send, an event for each, with one piece of one tool call at most.

    So are OpenAI's own events; some clients read only the first piece of one.
    """
    if not delta.reasoning and not delta.calls:
        return [f'{{"content":{encode_basestring(delta.content)}}}']
    calls = [{"tool_calls": [_call(one)]} for one in delta.calls]
    texts = [json.dumps(one, ensure_ascii=False) for one in calls]
    if delta.reasoning:
        given = {"reasoning": delta.reasoning, "reasoning_content": delta.reasoning}
        content = {"content": delta.content} if delta.content else {}
        return [json.dumps(content | given, ensure_ascii=False), *texts]
    if delta.content:
        return [f'{{"content":{encode_basestring(delta.content)}}}', *texts]
    return texts


def _call(call: Any) -> dict[str, Any]:
    if call.id is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}

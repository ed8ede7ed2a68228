"""POST /v1/completions."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from json.encoder import encode_basestring
from typing import Any, Final

from openai.types.completion_create_params import CompletionCreateParamsBase

from penstock_backends.openai_kit.asgi import Answer, EventStream, Exchange, event_bytes
from penstock_backends.openai_kit.chat import DONE, check_stream_options, event_head
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.generator import (
    Generation,
    Generator,
    Piece,
    Prompt,
    Step,
    Steps,
)
from penstock_backends.openai_kit.json_body import BodyReader, read_object
from penstock_backends.openai_kit.logprobs import completion_form
from penstock_backends.openai_kit.model_calls import (
    WholeAnswer,
    close,
    collect,
    interleaved,
    submit,
)
from penstock_backends.openai_kit.sampling import (
    FURTHER_FIELDS,
    refuse_ineffective,
    response_form,
    sampling_parameters,
)
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.usage import Usage, UsageReports, total

_MOST_PROMPTS: Final = 128


class CompletionEndpoint:
    """Continues texts."""

    def __init__(self, generator: Generator, settings: OpenAiSettings) -> None:
        self._generator = generator
        self._prompts = generator.prompts
        self._default = settings.default_max_tokens or self._prompts.completion_length
        self.reader = BodyReader(
            CompletionCreateParamsBase,
            ("stream", *FURTHER_FIELDS, "add_special_tokens", "response_format"),
            ignore_unknown=settings.unknown_fields == "ignore",
        )

    async def __call__(self, exchange: Exchange) -> Answer:
        """Answer one request, whose prompts may be several."""
        fields = self.reader.check(read_object(exchange.body), exchange.parameters)
        check_stream_options(fields)
        refuse_ineffective(fields)
        _check_best_of(fields)
        self._prompts.check(fields)
        prompts = [await self._prompt(one, fields) for one in _listed(fields)]
        generations = [self._generation(prompt, fields, exchange.request_id) for prompt in prompts]
        head = {
            "id": f"cmpl-{exchange.request_id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": fields["model"],
        }
        renamed = {"structured_outputs": "response_format"} if "response_format" in fields else {}
        streams = await submit(self._generator, generations, exchange, renamed)
        if _only_echoes(fields):
            streams = [_EchoSteps(steps) for steps in streams]
        if generations[0].whole:
            return await _whole(generations, streams, head, fields)
        events = _CompletionEvents(generations, head, fields)
        return EventStream(events.run(streams), partial(close, streams))

    def _generation(self, prompt: Prompt, fields: Mapping[str, Any], request_id: str) -> Generation:
        parameters = sampling_parameters(fields)
        if "response_format" in fields:
            parameters |= response_form(_checked_format(fields))
        if "logprobs" in fields:
            parameters["logprobs"] = fields["logprobs"]
        limits = {**fields, "max_tokens": 1} if _only_echoes(fields) else fields
        parameters |= self._prompts.answer_length(limits, prompt, self._default, "prompt")
        return Generation(
            prompt,
            parameters,
            whole=not fields.get("stream", False),
            token_ids=bool(fields.get("return_token_ids")),
            request_id=request_id,
        )

    async def _prompt(self, given: str | list[int], fields: Mapping[str, Any]) -> Prompt:
        if not isinstance(given, str):
            echo = bool(fields.get("echo"))
            return self._prompts.of_tokens(given, "prompt", with_text=echo)
        check_text(given, self._generator, "prompt")
        special = bool(fields.get("add_special_tokens", True))
        return await self._prompts.of_text(given, special=special)


def _listed(fields: Mapping[str, Any]) -> Sequence[Any]:
    """The prompts of a request: a text, a list of texts, token ids, or lists of those."""
    given = fields.get("prompt")
    if given is None or given in ("", []):
        refuse_field("prompt", "prompt must be non-empty")  # Triton's words (OA-13)
    single = isinstance(given, str) or isinstance(given[0], int)
    listed: Sequence[Any] = [given] if single else given
    if len(listed) > _MOST_PROMPTS:
        refuse_field("prompt", f"'prompt' holds {len(listed)} prompts, more than {_MOST_PROMPTS}")
    if fields.get("echo") and "logprobs" in fields:
        refuse_field("echo", "'echo' with 'logprobs' is not supported by this model's engine")
    return listed


def check_text(text: str, generator: Generator, field: str) -> None:
    """Refuse a text that cannot fit, before it is made tokens of."""
    facts = generator.facts
    if len(text) > facts.context_length * facts.longest_token:
        refuse_field(
            field,
            f"'{field}' has {len(text)} characters, too many for {generator.prompts.limit_text}",
            "context_length_exceeded",
        )


def _checked_format(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    given = fields["response_format"]
    if not isinstance(given, dict) or given.get("type") not in ("text", "json_object"):
        refuse_field(
            "response_format", "'response_format' of a completion may be text or json_object"
        )
    return fields


def _check_best_of(fields: Mapping[str, Any]) -> None:
    count = fields.get("n", 1)
    if fields.get("best_of", count) != count:
        refuse_field("best_of", "'best_of' must be as many as 'n': nothing is chosen among them")


def _echo(generation: Generation, fields: Mapping[str, Any]) -> str:
    """The text that is repeated before the answers to a prompt."""
    return generation.prompt.text if fields.get("echo") else ""


def _only_echoes(fields: Mapping[str, Any]) -> bool:
    """Whether prompts are wanted back and nothing else, as vLLM understands it."""
    return bool(fields.get("echo")) and fields.get("max_tokens") == 0


class _EchoSteps:
    """The steps of a prompt whose answer is left out: only its echo is wanted.

    Engines generate at least one token, which usage counts, as vLLM's does.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __aiter__(self) -> _EchoSteps:
        return self

    async def __anext__(self) -> Step:
        step = await self._steps.__anext__()
        return Step([_without_text(piece) for piece in step.pieces], step.cached_tokens)

    async def aclose(self) -> None:
        await self._steps.aclose()


def _without_text(piece: Piece) -> Piece:
    return Piece(piece.answer, tokens=piece.tokens, finish_reason=piece.finish_reason and "length")


async def _whole(
    generations: Sequence[Generation],
    streams: Sequence[Steps],
    head: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> bytes:
    usages = [Usage.of(one) for one in generations]
    choices: list[dict[str, Any]] = []
    count = fields.get("n", 1)
    try:
        for one, steps, usage in zip(generations, streams, usages, strict=True):
            for answer in await collect(steps, count, usage):
                choices.append(_choice(len(choices), _echo(one, fields), answer, fields))
    finally:
        await close(streams)
    document = {**head, "choices": choices, **total(usages).member()}
    return json.dumps(document, ensure_ascii=False).encode()


def _choice(
    index: int, echo: str, answer: WholeAnswer, fields: Mapping[str, Any]
) -> dict[str, Any]:
    top = fields.get("logprobs")
    choice = {
        "index": index,
        "text": echo + answer.text,
        "logprobs": None if top is None else completion_form(answer.logprobs, top, 0),
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
    }
    return {**choice, "token_ids": answer.token_ids} if answer.token_ids else choice


class _CompletionEvents:
    """The events of one streamed request."""

    def __init__(
        self,
        generations: Sequence[Generation],
        head: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> None:
        self._usages = [Usage.of(one) for one in generations]
        self._count = fields.get("n", 1)
        self._reports = UsageReports(fields.get("stream_options"))
        self._top = fields.get("logprobs")
        self._echoes = [_echo(one, fields) for one in generations for _ in range(self._count)]
        self._offsets = [0] * len(self._echoes)
        self._head = event_head(head)

    async def run(self, streams: Sequence[Steps]) -> AsyncGenerator[bytes, None]:
        """All events; those of one step travel together."""
        async for number, step in interleaved(streams):
            self._usages[number].add(step)
            base = number * self._count
            text = "".join(self._event(base + piece.answer, piece) for piece in step.pieces)
            if text:
                yield event_bytes(text)
        yield self._last()

    def _event(self, index: int, piece: Piece) -> str:
        if not (piece.text or piece.token_ids or piece.finish_reason):
            return ""
        text, self._echoes[index] = self._echoes[index] + piece.text, ""
        probabilities = "null"
        if self._top is not None and piece.logprobs:
            form = completion_form(piece.logprobs, self._top, self._offsets[index])
            probabilities = json.dumps(form, ensure_ascii=False)
            self._offsets[index] += sum(len(one) for one in form["tokens"])
        ending = '"finish_reason":null,"stop_reason":null'
        if piece.finish_reason is not None:
            reasons = json.dumps(piece.finish_reason), json.dumps(piece.stop_reason)
            ending = '"finish_reason":{},"stop_reason":{}'.format(*reasons)
        more = f',"token_ids":{json.dumps(list(piece.token_ids))}' if piece.token_ids else ""
        return (
            f'{self._head}{{"index":{index},"text":{encode_basestring(text)},'
            f'"logprobs":{probabilities},{ending}{more}}}]'
            f"{self._reports.tail(self._usages)}"
        )

    def _last(self) -> bytes:
        together = total(self._usages)
        if not (self._reports.at_end and together.counted):
            return DONE
        usage = json.dumps(together.plain())
        return f'{self._head}],"usage":{usage}}}\n\n'.encode() + DONE

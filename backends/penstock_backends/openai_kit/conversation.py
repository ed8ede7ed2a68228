"""A conversation that is ready to be generated: prompt, parameters, and parsers of its answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_backends.openai_kit.chat_template import ChatTemplate
from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.generator import Generation, Generator, Prompt
from penstock_backends.openai_kit.messages import template_messages, text_length
from penstock_backends.openai_kit.parsers.answer_parts import AnswerParser
from penstock_backends.openai_kit.parsers.reasoning import REASONING_PARSERS
from penstock_backends.openai_kit.parsers.tool_parsers import TOOL_PARSERS
from penstock_backends.openai_kit.sampling import (
    chat_logprobs,
    form_of_schema,
    refuse_ineffective,
    response_form,
    sampling_parameters,
)
from penstock_backends.openai_kit.settings import OpenAiSettings
from penstock_backends.openai_kit.tool_choice import ToolPlan, read_tools

TEMPLATE_FIELDS: Final = ("add_generation_prompt", "chat_template", "chat_template_kwargs")

_LONGEST_TOOLS: Final = 4
"""Factor by which tools may exceed the context's text: templates shorten some of them."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat that was checked. `renamed` names the client's fields by sampling parameter."""

    generation: Generation
    count: int
    plan: ToolPlan
    reasoning: str | None
    tool_parser: str | None
    renamed: Mapping[str, str]

    def parser(self) -> AnswerParser:
        """A parser of one answer."""
        reasoning = REASONING_PARSERS[self.reasoning]() if self.reasoning else None
        tools = TOOL_PARSERS[self.tool_parser]() if self.tool_parser else None
        return AnswerParser(self.plan, reasoning, tools)


class Conversations:
    """Makes prompts of chats for one model."""

    def __init__(self, generator: Generator, settings: OpenAiSettings) -> None:
        self._prompts = generator.prompts
        self._facts = generator.facts
        self._settings = settings
        source = generator.facts.chat_template
        tokens = generator.facts.special_tokens
        self._template = ChatTemplate(source, tokens) if source is not None else None

    async def prepare(self, fields: Mapping[str, Any], request_id: str) -> Conversation:
        """Check a chat and make its prompt; raises `ApiError`."""
        refuse_ineffective(fields)
        self._prompts.check(fields)
        plan = read_tools(fields, self._facts.name, self._settings.tool_call_parser)
        form, renamed = self._form(fields, plan)
        prompt = await self.prompt(fields, plan)
        parameters = sampling_parameters(fields) | chat_logprobs(fields) | form
        parameters |= self._prompts.answer_length(
            fields, prompt, self._settings.default_max_tokens, "messages"
        )
        generation = Generation(
            prompt,
            parameters,
            whole=not fields.get("stream", False),
            token_ids=bool(fields.get("return_token_ids")),
            request_id=request_id,
        )
        return Conversation(
            generation,
            fields.get("n", 1),
            plan,
            # An answer of a demanded form has no room for reasoning.
            None if parameters.get("structured_outputs") else self._settings.reasoning_parser,
            self._settings.tool_call_parser,
            renamed,
        )

    async def prompt(self, fields: Mapping[str, Any], plan: ToolPlan) -> Prompt:
        """The prompt of a chat."""
        return await self._prompts.of_text(self._text(fields, plan), special=False)

    def _text(self, fields: Mapping[str, Any], plan: ToolPlan) -> str:
        template = self._template_of(fields)
        messages = template_messages(fields["messages"], knows_developers=template.knows_developers)
        most = self._facts.context_length * self._facts.longest_token
        tools = len(json.dumps(plan.tools)) if plan.tools else 0
        if text_length(messages) > most or tools > most * _LONGEST_TOOLS:
            self._refuse_length()
        text = template.render(messages, plan.tools, **_variables(fields))
        if len(text) > most:
            self._refuse_length()
        return text

    def _refuse_length(self) -> None:
        text = f"the prompt is longer than fits {self._prompts.limit_text}"
        refuse_field("messages", text, "context_length_exceeded")

    def _form(
        self, fields: Mapping[str, Any], plan: ToolPlan
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The form of the answer, and which field asked for it."""
        renamed = {
            sampling: field
            for sampling, field in (
                ("logprobs", "top_logprobs"),
                ("max_tokens", "max_completion_tokens"),
            )
            if field in fields
        }
        form = response_form(fields)
        if plan.schema is None:
            return form, renamed | ({"structured_outputs": "response_format"} if form else {})
        if fields.get("structured_outputs"):
            refuse_field("tool_choice", "a forced tool call leaves no form for other output")
        # A `response_format` is that of text, of which such an answer has none.
        return form_of_schema(plan.schema), renamed | {"structured_outputs": "tools"}

    def _template_of(self, fields: Mapping[str, Any]) -> ChatTemplate:
        given = fields.get("chat_template")
        if given is not None:
            if not self._settings.trust_request_chat_template:
                refuse_field("chat_template", "templates of requests are not trusted by this model")
            if not isinstance(given, str):
                refuse_field("chat_template", "'chat_template' must be a string")
            return ChatTemplate(given, self._facts.special_tokens, "chat_template")
        if self._template is None:
            refuse_field(
                "messages",
                f"model '{self._facts.name}' has no chat template "
                '(set "openai": {"chat_template": ...})',
            )
        return self._template


def _variables(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a template that a request may set."""
    given = fields.get("chat_template_kwargs", {})
    if not isinstance(given, dict):
        refuse_field("chat_template_kwargs", "'chat_template_kwargs' must be an object")
    if reserved := given.keys() & {"messages", "tools"}:
        refuse_field("chat_template_kwargs", f"'chat_template_kwargs' may not set {min(reserved)}")
    generating = fields.get("add_generation_prompt", True)
    if not isinstance(generating, bool):
        refuse_field("add_generation_prompt", "'add_generation_prompt' must be a boolean")
    effort = (
        {"reasoning_effort": fields["reasoning_effort"]} if "reasoning_effort" in fields else {}
    )
    return {"add_generation_prompt": generating, **effort, **given}

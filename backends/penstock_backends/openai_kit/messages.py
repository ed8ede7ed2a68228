"""Conversations: what OpenAI's messages are to a chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic_core import from_json

from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.generator import Generator

_TEXT_PARTS: Final = ("text", "input_text", "output_text", "refusal")


def check_counts(messages: Any, generator: Generator) -> None:
    """Refuse more messages and parts than a prompt can hold, before anything looks at each."""
    if not isinstance(messages, list):
        return  # refused by its type
    if not messages:
        refuse_field("messages", "'messages' must hold at least one message", "empty_array")
    members = (value for one in messages if isinstance(one, dict) for value in one.values())
    count = len(messages) + sum(len(value) for value in members if isinstance(value, list))
    if count > generator.facts.context_length:
        refuse_field(
            "messages",
            f"'messages' hold {count} messages and parts, more than {generator.prompts.limit_text}",
            "context_length_exceeded",
        )


def template_messages(
    messages: Sequence[Mapping[str, Any]], *, knows_developers: bool
) -> list[dict[str, Any]]:
    """Messages whose contents are text, and whose calls have arguments as objects.

    Raises `ApiError` for content that is not text, and for results of calls that no message makes.
    """
    made: set[str] = set()
    converted = []
    for place, message in enumerate(messages):
        one = {name: value for name, value in message.items() if value is not None}
        one["content"] = _text(one.get("content", ""), f"messages[{place}].content")
        if one["role"] == "developer" and not knows_developers:
            one["role"] = "system"
        if "tool_calls" in one:
            one["tool_calls"] = [_tool_call(call, place) for call in one["tool_calls"]]
            made.update(call["id"] for call in one["tool_calls"])
        if one["role"] == "tool" and one["tool_call_id"] not in made:
            refuse_field(
                "messages",
                f"messages[{place}]: no message before it makes the call "
                f"'{one['tool_call_id'][:100]}' whose result it is",
            )
        converted.append(one)
    return converted


def text_length(messages: Sequence[Mapping[str, Any]]) -> int:
    """Characters of all contents."""
    return sum(len(message["content"]) for message in messages)


def _text(content: Any, place: str) -> str:
    return content if isinstance(content, str) else "\n".join(_part_texts(content, place))


def _part_texts(parts: Sequence[Mapping[str, Any]], place: str) -> Iterator[str]:
    for number, part in enumerate(parts):
        if part["type"] not in _TEXT_PARTS:
            refuse_field(
                "messages", f"{place}[{number}]: this model takes text, not '{part['type']}'"
            )
        yield part["refusal"] if part["type"] == "refusal" else part["text"]


def _tool_call(call: Mapping[str, Any], place: int) -> dict[str, Any]:
    if call["type"] != "function":
        refuse_field("messages", f"messages[{place}].tool_calls: only functions can be called")
    function = call["function"]
    try:
        arguments = from_json(function["arguments"] or "{}", allow_inf_nan=False)
    except ValueError:
        arguments = function["arguments"]  # as some model wrote it
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }

"""Requests of the Responses API, as the chats that they amount to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock_backends.openai_kit.errors import refuse_field

_SAME: Final = (
    "parallel_tool_calls",
    "stream",
    "temperature",
    "top_logprobs",
    "top_p",
)
_IGNORED_ITEMS: Final = ("reasoning",)


_LEFT_AWAY: Final = {"type": "message", "id": "", "status": "completed"}
"""Members of an assistant's message that OpenAI's types demand, and its API does not."""


def with_whole_messages(given: Any) -> Any:
    """Input whose assistants' messages have the members that clients leave away in them."""
    return [_whole_message(item) for item in given] if isinstance(given, list) else given


def _whole_message(item: Any) -> Any:
    if not isinstance(item, dict) or item.get("role") != "assistant":
        return item
    content = item.get("content")
    if not isinstance(content, list):
        return item
    parts = [{"annotations": [], **one} if isinstance(one, dict) else one for one in content]
    given = {name: value for name, value in item.items() if value is not None}
    return {**_LEFT_AWAY, **given, "content": parts}


def as_chat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a chat; raises `ApiError` for what a chat has not."""
    chat = {name: fields[name] for name in _SAME if name in fields}
    chat["model"] = fields.get("model", "")
    chat["messages"] = _messages(fields)
    if "max_output_tokens" in fields:
        chat["max_completion_tokens"] = fields["max_output_tokens"]
    if fields.get("top_logprobs"):
        chat["logprobs"] = True
    if fields.get("tools"):
        chat["tools"] = [_tool(tool) for tool in fields["tools"]]
    if "tool_choice" in fields:
        chat["tool_choice"] = _tool_choice(fields["tool_choice"])
    text = fields.get("text", {})
    if "format" in text:
        chat["response_format"] = _response_format(text["format"])
    effort = fields.get("reasoning", {}).get("effort")
    return {**chat, "reasoning_effort": effort} if effort is not None else chat


def _messages(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if fields.get("instructions"):
        messages.append({"role": "system", "content": fields["instructions"]})
    given = fields.get("input")
    if not given:
        refuse_field("input", "'input' must not be empty")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for place, item in enumerate(items):
        _add(messages, item, place)
    return messages


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], place: int) -> None:
    kind = item.get("type", "message" if "role" in item else "item_reference")
    if kind == "message":
        messages.append({"role": item["role"], "content": item["content"]})
    elif kind == "function_call":
        _add_call(messages, item)
    elif kind == "function_call_output":
        messages.append(
            {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
        )
    elif kind not in _IGNORED_ITEMS:
        refuse_field("input", f"input[{place}]: items of type '{kind}' are not supported")


def _add_call(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Calls one after the other are one message's; they may follow its text."""
    function = {"name": item["name"], "arguments": item["arguments"]}
    call = {"id": item["call_id"], "type": "function", "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1].setdefault("tool_calls", []).append(call)


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        refuse_field("tools", f"tools of type '{tool['type']}' are not supported: use function")
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _response_format(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["type"] != "json_schema":
        return dict(given)
    return {"type": "json_schema", "json_schema": {"schema": given["schema"]}}

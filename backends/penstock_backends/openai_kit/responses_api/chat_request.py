"""Requests of the Responses API, as the chats that they amount to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from penstock_backends.openai_kit.errors import ApiError, refuse_field

_SAME: Final = (
    "parallel_tool_calls",
    "stream",
    "temperature",
    "top_logprobs",
    "top_p",
)
_IGNORED_ITEMS: Final = ("reasoning",)
_ITEM_HINTS: Final = {
    "item_reference": ": nothing is stored here; send the item itself, as clients do that are told "
    "not to store ('store': false)"
}
_LOGPROBS: Final = "message.output_text.logprobs"
_REASONING: Final = "reasoning.encrypted_content"
"""A member of `include` for clients that keep a conversation; reasoning is told in plain text."""
_UNSUPPORTED: Final = "unsupported_parameter"
_INSTEAD: Final = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning",
    "response_format": "text",
}
"""Fields here by those of the chat that they become."""
_PLACE: Final = re.compile(r"messages\[(\d+)\](\.content)?")

_LEFT_AWAY: Final = {"type": "message", "id": "", "status": "completed"}
"""Members of an assistant's message that OpenAI's types demand, and its API does not."""
_LEFT_AWAY_IN_TOOL: Final = {"parameters": {}, "strict": False}
"""The same of a function."""
_LEFT_AWAY_IN_REASONING: Final = {"id": "", "summary": []}
"""The same of reasoning, of which nothing is read."""


class ChatRequest(NamedTuple):
    """The fields of a chat, and from where in a response's request each of its messages comes."""

    fields: dict[str, Any]
    places: Sequence[tuple[str, str]]
    """Of each message its place, and the one of its content."""


def whole_request(given: Mapping[str, Any]) -> dict[str, Any]:
    """A request with the members of its messages and functions that clients leave away."""
    whole = dict(given)
    for name, made_whole in (("input", _whole_item), ("tools", _whole_tool)):
        if isinstance(whole.get(name), list):
            whole[name] = [made_whole(one) for one in whole[name]]
    return whole


def _whole_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    told = {name: value for name, value in tool.items() if value is not None}
    return {**_LEFT_AWAY_IN_TOOL, **told}


def _whole_item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    if item.get("type") == "reasoning":
        return {**item, **_LEFT_AWAY_IN_REASONING}
    return _whole_message(item) if "role" in item else item


def _whole_message(item: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in item.items() if value is not None}
    content = given.get("content")
    if given.get("role") != "assistant" or not isinstance(content, list):
        return {"type": "message", **given}
    parts = [{"annotations": [], **one} if isinstance(one, dict) else one for one in content]
    return {**_LEFT_AWAY, **given, "content": parts}


def in_names_of_responses(error: ApiError, places: Sequence[tuple[str, str]] = ()) -> ApiError:
    """An error of a chat, which the client did not send, with its own fields and places in them."""

    def place(found: re.Match[str]) -> str:
        return places[int(found[1])][1 if found[2] else 0]

    return error.renamed(_INSTEAD, partial(_PLACE.sub, place) if places else str)


def as_chat(fields: Mapping[str, Any]) -> ChatRequest:
    """The chat of a request; raises `ApiError` for what a chat has not."""
    chat = {name: fields[name] for name in _SAME if name in fields}
    chat["model"] = fields.get("model", "")
    messages = _Messages(fields)
    chat["messages"] = messages.made
    if "max_output_tokens" in fields:
        chat["max_completion_tokens"] = fields["max_output_tokens"]
    included = _included(fields)
    if fields.get("top_logprobs") or _LOGPROBS in included:
        chat["logprobs"] = True
    if fields.get("tools"):
        chat["tools"] = [_tool(tool) for tool in fields["tools"]]
    if "tool_choice" in fields:
        chat["tool_choice"] = _tool_choice(fields["tool_choice"])
    text = fields.get("text", {})
    if "format" in text:
        chat["response_format"] = _response_format(text["format"])
    effort = fields.get("reasoning", {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    return ChatRequest(chat, messages.places)


def _included(fields: Mapping[str, Any]) -> Sequence[str]:
    """The members of `include`; raises `ApiError` for one that no answer has."""
    included: Sequence[str] = fields.get("include", ())
    for one in included:
        if one not in (_LOGPROBS, _REASONING):
            refuse_field("include", f"'include' of '{one}' is not supported", _UNSUPPORTED)
    return included


class _Messages:
    """The messages of a chat, and where each comes from."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.made: list[dict[str, Any]] = []
        self.places: list[tuple[str, str]] = []
        if fields.get("instructions"):
            system = {"role": "system", "content": fields["instructions"]}
            self._append(system, "instructions")
        given = fields.get("input")
        if not given:
            refuse_field("input", "'input' must not be empty")
        if isinstance(given, str):
            self._append({"role": "user", "content": given}, "input")
            return
        for number, item in enumerate(given):
            self._add(item, f"input[{number}]")

    def _append(self, message: dict[str, Any], place: str, member: str = "") -> None:
        self.made.append(message)
        self.places.append((place, place + member))

    def _add(self, item: Mapping[str, Any], place: str) -> None:
        kind = item.get("type", "item_reference")
        if kind == "message":
            message = {"role": item["role"], "content": item["content"]}
            self._append(message, place, ".content")
        elif kind == "function_call":
            self._add_call(item, place)
        elif kind == "function_call_output":
            result = {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
            self._append(result, place, ".output")
        elif kind not in _IGNORED_ITEMS:
            text = f"{place}: items of type '{kind}' are not supported"
            refuse_field("input", text + _ITEM_HINTS.get(kind, ""))

    def _add_call(self, item: Mapping[str, Any], place: str) -> None:
        """Calls one after the other are one message's; they may follow its text."""
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        if not self.made or self.made[-1]["role"] != "assistant":
            self._append({"role": "assistant", "content": ""}, place)
        self.made[-1].setdefault("tool_calls", []).append(call)


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

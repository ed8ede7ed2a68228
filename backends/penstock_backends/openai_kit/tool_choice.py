"""Tools of a request: which way calls are made, and what the answer must look like for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from penstock_backends.openai_kit.errors import refuse_field
from penstock_backends.openai_kit.schemas import without_references

_MOST_TOOLS: Final = 128
_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """The way that calls are made: not at all, by the model's own format, or by structured output.

    `name` is the function of a `named` plan. `tools` are those that the template gets. `parallel`
    says whether an answer may hold several calls.
    """

    way: Literal["none", "auto", "required", "named"] = "none"
    tools: Sequence[Mapping[str, Any]] | None = None
    name: str = ""
    parallel: bool = True

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema that the answer must fit; `None` where its form is free."""
        functions = {tool["function"]["name"]: tool["function"] for tool in self.tools or ()}
        if self.way == "named":
            return _parameters(functions[self.name])
        if self.way != "required":
            return None
        calls = [_call_schema(function) for function in functions.values()]
        schema: dict[str, Any] = {"type": "array", "items": {"anyOf": calls}, "minItems": 1}
        return schema if self.parallel else {**schema, "maxItems": 1}


def read_tools(fields: Mapping[str, Any], model: str, parser: str | None) -> ToolPlan:
    """The plan of a chat request; raises `ApiError` for what cannot be kept."""
    tools = fields.get("tools") or []
    choice = fields.get("tool_choice", "auto" if tools else "none")
    if len(tools) > _MOST_TOOLS:
        refuse_field("tools", f"'tools' hold {len(tools)} tools, more than {_MOST_TOOLS}")
    for tool in tools:
        if tool["type"] != "function":
            refuse_field("tools", f"tools of type '{tool['type']}' are not supported: use function")
    if choice == "none" or (choice == "auto" and not tools):
        return ToolPlan()
    if not tools:
        refuse_field("tool_choice", "'tool_choice' needs 'tools'")
    parallel = fields.get("parallel_tool_calls", True)
    if choice == "auto":
        _check_parser(model, parser)
        return ToolPlan("auto", tools, parallel=parallel)
    if choice == "required":
        return ToolPlan("required", tools, parallel=parallel)
    return ToolPlan("named", tools, _name(choice, tools))


def _name(choice: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str:
    if choice.get("type") != "function":
        refuse_field("tool_choice", f"'tool_choice' of type '{choice['type']}' is not supported")
    name: str = choice["function"]["name"]
    if name not in [tool["function"]["name"] for tool in tools]:
        refuse_field("tool_choice", f"'tool_choice' names '{name[:100]}', which is not in 'tools'")
    return name


def _check_parser(model: str, parser: str | None) -> None:
    if parser is None:
        refuse_field(
            "tool_choice",
            f"tool_choice 'auto' needs a tool parser; '{model}' has none "
            '(set "openai": {"tool_call_parser": ...})',
        )


def _parameters(function: Mapping[str, Any]) -> dict[str, Any]:
    given = function.get("parameters")
    return without_references(given, "tools") if given else dict(_NO_PARAMETERS)


def _call_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [function["name"]]},
            "parameters": _parameters(function),
        },
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }

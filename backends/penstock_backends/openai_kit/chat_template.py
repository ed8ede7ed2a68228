"""Chat templates: conversations to prompts, in a sandbox that is set up as transformers does."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from penstock_backends.openai_kit.errors import ApiError

logger = logging.getLogger(__name__)

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class ChatTemplate:
    """A compiled template. Raises `ApiError` for one that cannot be compiled or rendered.

    The error names `field`: that of the request in which the client finds the cause.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        field: str = "messages",
    ) -> None:
        self._source = source
        self._field = field
        self._special_tokens = special_tokens or {}
        try:
            self._template = _environment().from_string(source)
        except (TemplateError, RecursionError) as error:
            raise _refusal(error, field) from error

    @property
    def knows_developers(self) -> bool:
        """Whether the template has words for the role `developer`."""
        return "developer" in self._source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        /,
        **variables: Any,
    ) -> str:
        """The prompt of a conversation; `variables` are what else a template may ask for."""
        known = {**self._special_tokens, "documents": None, **variables}
        try:
            return self._template.render({**known, "messages": messages, "tools": tools})
        except Exception as error:  # a template is a program, which may raise anything
            raise _refusal(error, self._field) from error


def find_template(folders: Sequence[Path], otherwise: str | None = None) -> str | None:
    """The template among a model's files; `otherwise` is that of its weights' own file."""
    for folder in folders:
        if (folder / "chat_template.jinja").is_file():
            return _text(folder / "chat_template.jinja")
    for folder in folders:
        for name in ("chat_template.json", "tokenizer_config.json"):
            found = _default_of(_object(folder / name).get("chat_template"))
            if found is not None:
                return found
    return otherwise


def find_special_tokens(folders: Sequence[Path]) -> Mapping[str, str]:
    """`bos_token` and the others, as the tokenizer's files name them."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            given = _object(folder / name)
            for token in _SPECIAL:
                text = given.get(token)
                text = text.get("content") if isinstance(text, dict) else text
                if isinstance(text, str):
                    found.setdefault(token, text)
    return found


def _default_of(given: Any) -> str | None:
    """A template, or of several named ones that named `default`."""
    if isinstance(given, list):
        named = [one for one in given if isinstance(one, dict) and one.get("name") == "default"]
        given = named[0].get("template") if named else None
    return given if isinstance(given, str) else None


def _text(path: Path) -> str:
    read = path.read_bytes()
    try:
        return read.decode()
    except UnicodeDecodeError as error:
        line = read.count(b"\n", 0, error.start) + 1
        logger.warning("%s:%d: what is not UTF-8 stands as U+FFFD in each prompt", path, line)
        return read.decode(errors="replace")


def _object(path: Path) -> Mapping[str, Any]:
    try:
        given = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return given if isinstance(given, dict) else {}


def _refusal(error: Exception, field: str) -> ApiError:
    return ApiError(f"the chat template failed: {error}", param=field, code="chat_template")


class _GenerationTag(Extension):
    """The tag `generation`, which marks what assistants say; it is rendered like any text.

    What is set inside is not known behind it.
    """

    tags = {"generation"}  # noqa: RUF012  (jinja2's own form)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tag and its end."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body, lineno=line)]


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _formatted_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes for HTML that jinja2's own filter makes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _formatted_now(layout: str) -> str:
    return datetime.now().strftime(layout)

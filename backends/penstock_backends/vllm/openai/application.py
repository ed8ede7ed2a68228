"""`VllmApplication`: vLLM's own OpenAI application, in front of it what a server has to decide."""

from __future__ import annotations

import asyncio
import re
from argparse import Namespace
from contextlib import AsyncExitStack
from copy import copy
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from penstock.backend import (
    ASGI_DESCRIPTION,
    ASGI_EXTENSION,
    AsgiApp,
    InferenceRequest,
    InvalidRequestError,
    ModelLoadError,
    UnavailableError,
)
from penstock_backends.language_model import (
    MediaLimits,
    UsageSum,
    keep_image_formats,
    limit_fetches,
)
from penstock_backends.language_model.asgi import Message, Receive, Send, replayed
from penstock_backends.language_model.openai_description import send_description, shown_part
from penstock_backends.language_model.openai_refusal import (
    refuse_body,
    refuse_field,
    refuse_model,
    refuse_path,
    refuse_size,
)
from penstock_backends.vllm.adapters import Adapter
from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.engine import VllmEngine
from penstock_backends.vllm.failures import UNHEALTHY
from penstock_backends.vllm.internals import (
    EntryPoints,
    NamedAdapters,
    outlive_errors,
    replace_parsers,
)
from penstock_backends.vllm.lora import DISABLED
from penstock_backends.vllm.openai.exchange_record import RECORD, exchange_record
from penstock_backends.vllm.openai.kept_text import keeping_text
from penstock_backends.vllm.openai.media_connector import bound_media
from penstock_backends.vllm.openai.metered_engine import (
    CURRENT,
    LOADED,
    MeteredEngine,
)
from penstock_backends.vllm.openai.request_fields import (
    fields_by_path,
    read_object,
    too_large,
    unknown_field,
)
from penstock_backends.vllm.output_owners import OWNER, owner_of
from penstock_backends.vllm.own_spans import trace_headers

ADAPTER: Final = "adapter"
"""The parameter of a request whose model name has an adapter in it."""
UNKNOWN_FIELDS: Final = "unknown_fields"
"""The parameter of a request whose unknown fields are ignored: `ignore`."""
_CACHED: Final = "enable_prompt_tokens_details"
"""vLLM's argument by which usage includes cached tokens; here it is true by default."""


async def vllm_application(
    engine: VllmEngine, arguments: EngineArguments, name: str, limits: MediaLimits
) -> AsgiApp:
    """The application of a running engine, which answers for the model `name`.

    It fetches media within `limits`, and opens images of our formats only. Raises `ModelLoadError`
    for arguments that vLLM refuses, `UnsupportedError` for a vLLM whose entry points are others,
    and what a vLLM raises that does not fit otherwise.
    """
    found = await asyncio.to_thread(EntryPoints.find)
    bound_media(limits)
    keep_image_formats()
    options = _parsed(found, engine, arguments, name)
    llm = MeteredEngine(engine, engine.llm)
    tasks = tuple(sorted(engine.tasks))
    app = found.build_app(options, tasks, engine.llm.model_config)
    outlive_errors(app.state)
    try:
        await found.init_app_state(llm, app.state, options, tasks)
    except ValueError as error:  # of a template that is not one
        if not arguments.openai.values:
            raise
        raise ModelLoadError(f"'openai' in '{arguments.path}': {error}") from error
    if engine.inside.has("parsers"):
        auto_tools = options.enable_auto_tool_choice
        replace_parsers(app.state, lambda parser: keeping_text(parser, auto_tools))
    return VllmApplication(engine, app, arguments.openai.ignores_unknown)


def _parsed(
    found: EntryPoints, engine: VllmEngine, arguments: EngineArguments, name: str
) -> Namespace:
    """vLLM's front-end arguments, checked by its parser, with the facts of the engine."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc, unused-ignore]
        def error(self, message: str) -> Any:
            raise ModelLoadError(f"'openai' in '{arguments.path}': {message}")

    parser = found.make_arg_parser(Parser(add_help=False))
    options: Namespace = parser.parse_args(arguments.openai.options)
    config = engine.llm.vllm_config
    options.model = config.model_config.model
    options.served_model_name = [name]
    options.structured_outputs_config = config.structured_outputs_config
    options.disable_log_stats = options.disable_fastapi_docs = True
    if arguments.openai.values.get(_CACHED) is None:
        setattr(options, _CACHED, True)  # also where vLLM has no such option
    _check_parser(options, arguments.path)
    return options


def _check_parser(options: Namespace, path: Path) -> None:
    """Refuse a parser of tool calls that vLLM does not have, which it would find out late."""
    from vllm.tool_parsers import ToolParserManager

    if plugin := options.tool_parser_plugin:
        ToolParserManager.import_tool_parser(plugin)
    known = ToolParserManager.list_registered()
    if options.tool_call_parser is not None and options.tool_call_parser not in known:
        raise ModelLoadError(
            f"'openai' in '{path}': vLLM has no tool call parser '{options.tool_call_parser}';"
            f" it has {', '.join(known)}"
        )
    if options.enable_auto_tool_choice and options.tool_call_parser is None:
        raise ModelLoadError(
            f"'openai' in '{path}': 'enable_auto_tool_choice' needs a 'tool_call_parser'"
        )


def _stores_responses() -> bool:
    from vllm import envs

    return bool(getattr(envs, "VLLM_ENABLE_RESPONSES_API_STORE", False))


class VllmApplication:
    """Shows some routes of vLLM's application, and gives it requests with their adapters loaded."""

    def __init__(self, engine: VllmEngine, app: Any, ignores_unknown: bool) -> None:
        self._engine = engine
        self._app = app
        self._ignores_unknown = ignores_unknown
        self._fields = fields_by_path(app.routes)
        self._paths = {getattr(route, "path", "") for route in app.routes}
        self._adapters = NamedAdapters(app.state, written=engine.inside.has("adapters"))
        self._users: dict[str, int] = {}
        self._stores = _stores_responses()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["path"] == ASGI_DESCRIPTION:
            whole = await asyncio.to_thread(self._app.openapi)
            await send_description(send, shown_part(whole, "vLLM", SHOWN))
            return
        request: InferenceRequest = scope["extensions"][ASGI_EXTENSION]["request"]
        shown = shown_route(scope["path"])
        if shown is None or shown[0] not in self._paths or shown[1] != scope["method"]:
            await refuse_path(send, scope["path"])
            return
        if self._engine.failed:
            raise UnavailableError(UNHEALTHY)
        self._engine.calls.check_awake()
        first = await receive()
        body = first.get("body", b"")
        if await self._refused(shown[0], body, request, send):
            return
        if self._stores and shown[0] == RESPONSES:
            model = str(request.parameters.get("model", request.model_name))
            first = {**first, "body": with_response_id(body, model)}
        try:
            adapter = self._adapter(request)
        except InvalidRequestError as error:
            await refuse_model(send, error.message)
            return
        traced = self._traced(scope, request)
        await self._answer(request, adapter, traced, replayed(first, receive), send)

    async def _answer(
        self,
        request: InferenceRequest,
        adapter: Adapter | None,
        scope: Message,
        receive: Receive,
        send: Send,
    ) -> None:
        """Have vLLM's application answer, while the request's adapter is loaded."""
        async with AsyncExitStack() as stack:
            if adapter is not None:
                await self._load(adapter, stack, str(request.parameters.get("model", adapter.name)))
            report = request.scope.report_usage
            CURRENT.set(None if report is None else UsageSum(report))
            RECORD.set(exchange_record(request))
            OWNER.set(owner_of(request))
            limit_fetches()
            await self._app(scope, receive, EventStream(send).send)

    async def _refused(self, path: str, body: bytes, request: InferenceRequest, send: Send) -> bool:
        """Whether a body was refused, which vLLM itself would not have done."""
        known = self._fields.get(path)
        try:
            given = read_object(body) if known and path not in FORMS else {}
        except ValueError as error:
            await refuse_body(send, str(error))
            return True
        large = too_large(path, given, len(body), self._engine.facts.context_length)
        if large is not None:
            await refuse_size(send, *large)
            return True
        ignores = self._ignores_unknown or request.parameters.get(UNKNOWN_FIELDS) == "ignore"
        unknown = unknown_field(given, known) if known and not ignores else None
        if unknown is not None:
            await refuse_field(send, *unknown)
        return unknown is not None

    def _adapter(self, request: InferenceRequest) -> Adapter | None:
        """The adapter in the model's name; raises `InvalidRequestError` for an unknown one."""
        name = request.parameters.get(ADAPTER)
        if not isinstance(name, str):
            return None
        if self._engine.adapters is None:
            raise InvalidRequestError(DISABLED)
        return self._engine.adapters.find(name)

    async def _load(self, adapter: Adapter, stack: AsyncExitStack, model: str) -> None:
        """Have an adapter loaded under the name that the request gives the model."""
        adapters = self._engine.adapters
        assert adapters is not None
        loaded = await adapters.acquire(adapter)
        stack.callback(adapters.release, adapter)
        LOADED.set(loaded)
        named = copy(loaded)
        named.lora_name = model  # the name of the model in answers
        self._users[model] = self._users.get(model, 0) + 1
        stack.push_async_callback(self._forget, model)
        await self._adapters.add(named)

    async def _forget(self, model: str) -> None:
        self._users[model] -= 1
        if not self._users[model]:
            del self._users[model]
            await self._adapters.remove(model)

    def _traced(self, scope: Message, request: InferenceRequest) -> Message:
        """The scope, with the parent of vLLM's spans, where it makes any.

        It is the server's span, or the client's where the server's is not exported.
        """
        makes_spans, timeline = self._engine.makes_spans, request.scope.timeline
        own = trace_headers(timeline) if makes_spans and timeline is not None else None
        if makes_spans and own is None:
            return scope
        headers = [one for one in scope["headers"] if one[0] not in _TRACE]
        headers += [(name.encode(), value.encode()) for name, value in (own or {}).items()]
        return {**scope, "headers": headers}


_TRACE: Final = (b"traceparent", b"tracestate")


# -- streams and ids -------------------------------------------------------------------------------

_ERROR: Final = b'data: {"error":'
_DONE: Final = b"data: [DONE]"


class EventStream:
    """Passes messages of one answer on; an event of an error is the last of its stream.

    vLLM ends every stream with `[DONE]`, which says to clients that the answer is complete. Each of
    its events is a message of its own.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._failed = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        body = message.get("body", b"")
        self._failed = self._failed or body.startswith(_ERROR)
        if self._failed and body.startswith(_DONE):
            message = {**message, "body": b""}
        await self._send(message)


RESPONSES: Final = "/v1/responses"
_MEMBER: Final = b'"request_id"'


def with_response_id(body: bytes, model: str) -> bytes:
    """The object with a member more, of which vLLM makes the response's id.

    A request with an id of its own keeps it.
    """
    body = body.rstrip()
    if _MEMBER in body or not body.endswith(b"}"):
        return body
    return b'%b,%b:"%b"}' % (body[:-1], _MEMBER, _response_id(model).encode())


def _response_id(model: str) -> str:
    """A new id; the server's door reads the model of its last part."""
    return f"resp_{uuid4().hex}_{model.encode().hex()}"


# -- routes ----------------------------------------------------------------------------------------

SHOWN: Final = {
    "/v1/chat/completions": "POST",
    "/v1/chat/completions/batch": "POST",
    "/v1/completions": "POST",
    "/v1/responses": "POST",
    "/v1/responses/{response_id}": "GET",
    "/v1/responses/{response_id}/cancel": "POST",
    "/v1/messages": "POST",
    "/v1/messages/count_tokens": "POST",
    "/v1/embeddings": "POST",
    "/v1/score": "POST",
    "/score": "POST",
    "/v1/rerank": "POST",
    "/v2/rerank": "POST",
    "/rerank": "POST",
    "/classify": "POST",
    "/pooling": "POST",
    "/v1/audio/transcriptions": "POST",
    "/v1/audio/translations": "POST",
    "/tokenize": "POST",
    "/detokenize": "POST",
    # With "enable_scale_out" only: vLLM itself registers them then.
    "/v1/chat/completions/render": "POST",
    "/v1/completions/render": "POST",
    "/v1/messages/render": "POST",
    "/v1/responses/render": "POST",
    "/inference/v1/generate": "POST",
}
"""Paths by vLLM's own patterns, with their method."""

FORMS: Final = frozenset({"/v1/audio/transcriptions", "/v1/audio/translations"})
"""Paths whose bodies are forms with files, not JSON."""

HIDDEN: Final = frozenset(
    {
        "/docs",
        "/docs/oauth2-redirect",
        "/redoc",
        "/openapi.json",
        "/generative_scoring",
        "/health",
        "/inference/v1/abort_requests",
        "/invocations",
        "/is_scaling_elastic_ep",
        "/kv_event_sources",
        "/load",
        "/metrics",
        "/ping",
        "/scale_elastic_ep",
        "/v1/chat/completions/derender",
        "/v1/completions/derender",
        "/v1/decisions",
        "/v1/load_lora_adapter",
        "/v1/models",
        "/v1/realtime",
        "/v1/systemone",
        "/v1/unload_lora_adapter",
        "/v2/embed",
        "/version",
    }
)
"""Paths that vLLM may have and clients do not see: the server has its own, or they administrate."""

_BY_PATTERN: Final = [
    (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), path, method) for path, method in SHOWN.items()
]


def shown_route(path: str) -> tuple[str, str] | None:
    """Pattern and method of the route that is shown at `path`; `None` for no such route."""
    if path in SHOWN:
        return path, SHOWN[path]
    found = (one for one in _BY_PATTERN if one[0].fullmatch(path))
    return next(((pattern, method) for _, pattern, method in found), None)

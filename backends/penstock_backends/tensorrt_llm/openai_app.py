"""OpenAI's API of a model on TensorRT-LLM: the application of its own `OpenAIServer`."""

from __future__ import annotations

import asyncio
import inspect
import json
from importlib import import_module
from typing import Any, Final

from penstock.backend import (
    ASGI_DESCRIPTION,
    ASGI_EXTENSION,
    InferenceRequest,
    InvalidRequestError,
    ModelLoadError,
    UnavailableError,
    UnsupportedError,
)
from penstock_backends.language_model.asgi import Message, Receive, Send, replayed
from penstock_backends.language_model.openai_description import send_description, shown_part
from penstock_backends.language_model.openai_refusal import refuse_path
from penstock_backends.tensorrt_llm.engine import UNHEALTHY, TensorRtLlmEngine
from penstock_backends.tensorrt_llm.settings import TEMPLATE, EngineSettings

SHOWN: Final = frozenset(
    (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
    )
)
"""Paths that clients see; others of `OpenAIServer` administrate, or the server has its own."""

_MEDIA: Final = ("image_url", "video_url", "audio_url")

_MODULE: Final = "tensorrt_llm.serve.openai_server"
_CLASS: Final = "OpenAIServer"
_GIVEN: Final = ("model", "tool_parser", "server_role", "metadata_server_cfg")
"""Its parameters behind the `LLM`, whose own name has changed."""


def trtllm_application(
    engine: TensorRtLlmEngine, settings: EngineSettings, name: str
) -> TensorRtLlmApplication:
    """The application over a running engine, which answers for the model `name`. Blocks.

    Raises `UnsupportedError` for a release whose `OpenAIServer` is made in another way.
    """
    try:
        server = getattr(import_module(_MODULE), _CLASS)
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(f"{_release()} has no {_MODULE}.{_CLASS}: {error}") from error
    openai = settings.openai or {}
    names = list(inspect.signature(server).parameters)
    if tuple(names[1:5]) != _GIVEN:
        wanted = ", ".join(("generator", *_GIVEN))
        raise UnsupportedError(f"{_release()} has no {_CLASS}({wanted})")
    more: dict[str, Any] = {}
    if TEMPLATE in openai:
        if TEMPLATE not in names:
            raise ModelLoadError(f"{_release()}: its {_CLASS} takes no '{TEMPLATE}'")
        more[TEMPLATE] = openai[TEMPLATE]
    try:
        made = server(engine.llm, name, openai.get("tool_call_parser"), None, None, **more)
    except Exception as error:  # a parser or a template that is not one
        raise ModelLoadError(f"'openai' in '{settings.path}': {error}") from error
    return TensorRtLlmApplication(engine, made.app)


def _release() -> str:
    return f"TensorRT-LLM {getattr(import_module('tensorrt_llm'), '__version__', '')}".strip()


class TensorRtLlmApplication:
    """Shows some routes of its application."""

    def __init__(self, engine: TensorRtLlmEngine, app: Any) -> None:
        self._engine = engine
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["path"] == ASGI_DESCRIPTION:
            whole = await asyncio.to_thread(self._app.openapi)
            await send_description(send, shown_part(whole, "TensorRT-LLM", SHOWN))
            return
        if scope["path"] not in SHOWN:
            await refuse_path(send, scope["path"])
            return
        if self._engine.failed:
            raise UnavailableError(UNHEALTHY)
        request: InferenceRequest = scope["extensions"][ASGI_EXTENSION]["request"]
        if "adapter" in request.parameters:
            raise UnsupportedError(
                "adapters of TensorRT-LLM are named by the field 'lora_request', not by the model"
            )
        first = await receive()
        if name := _fetched(first.get("body", b"")):
            raise InvalidRequestError(f"'{name}' must hold a data: URL: media are not fetched here")
        await self._app(scope, replayed(first, receive), send)


def _fetched(body: bytes) -> str:
    """The member that names media which its application would fetch or open, from anywhere."""
    if b"_url" not in body and b"\\u" not in body:
        return ""
    try:
        left: list[Any] = [json.loads(body)]
    except (ValueError, RecursionError):
        return ""
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
            if named := next((name for name in _MEDIA if _is_elsewhere(one.get(name))), ""):
                return named
    return ""


def _is_elsewhere(medium: Any) -> bool:
    url = medium.get("url") if isinstance(medium, dict) else medium
    return isinstance(url, str) and not url.startswith("data:")

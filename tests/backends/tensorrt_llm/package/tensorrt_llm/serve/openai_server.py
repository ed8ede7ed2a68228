"""The stand-in for `OpenAIServer`, which takes what the real one of 1.2 to 1.4 does."""

from __future__ import annotations

import json
from typing import Any


class OpenAIServer:
    """Its `app` tells what it was made with."""

    def __init__(
        self,
        generator: Any,
        model: str,
        tool_parser: str | None,
        server_role: Any,
        metadata_server_cfg: Any,
        disagg_cluster_config: Any = None,
        multimodal_server_config: Any = None,
        chat_template: str | None = None,
    ) -> None:
        if tool_parser == "lost":
            raise ValueError("no parser 'lost'")
        self.app = _App([type(generator).__name__, model, tool_parser, chat_template])


class _App:
    """What of a `FastAPI` is asked."""

    def __init__(self, made: list[Any]) -> None:
        self._made = made

    def openapi(self) -> dict[str, Any]:
        chat = {"$ref": "#/components/schemas/Chat"}
        body = {"content": {"application/json": {"schema": chat}}}
        asked = {"post": {"summary": "ask", "requestBody": body, "responses": {"200": {}}}}
        return {
            "openapi": "3.1.0",
            "info": {"title": "FastAPI", "version": "1"},
            "paths": {"/v1/chat/completions": asked, "/release_memory": asked, "/health": asked},
            "components": {"schemas": {"Chat": {"type": "object"}, "Memory": {}}},
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = json.dumps({"made": self._made, "path": scope["path"]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

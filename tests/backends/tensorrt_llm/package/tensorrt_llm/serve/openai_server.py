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
        self._made = [type(generator).__name__, model, tool_parser, chat_template]

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        body = json.dumps({"made": self._made, "path": scope["path"]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

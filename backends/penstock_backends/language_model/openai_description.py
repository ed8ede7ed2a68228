"""OpenAPI documents of engines' own applications, of which clients see some routes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from penstock_backends.language_model.asgi import Send, send_json

_REFERENCE = re.compile('"#/components/schemas/([^"]+)"')


def shown_part(document: Mapping[str, Any], title: str, paths: Collection[str]) -> dict[str, Any]:
    """The document of these paths alone, under a title, with the schemas that they refer to."""
    shown = {path: one for path, one in document["paths"].items() if path in paths}
    schemas = document.get("components", {}).get("schemas", {})
    wanted: dict[str, Any] = {}
    unread = [shown]
    while unread:
        for name in _REFERENCE.findall(json.dumps(unread.pop())):
            if name in schemas and name not in wanted:
                wanted[name] = schemas[name]
                unread.append(schemas[name])
    return {
        "openapi": document["openapi"],
        "info": {"title": title, "version": str(document["info"]["version"])},
        "paths": shown,
        "components": {"schemas": wanted},
    }


async def send_description(send: Send, document: Mapping[str, Any]) -> None:
    """Answer with a document."""
    await send_json(send, json.dumps(document).encode())

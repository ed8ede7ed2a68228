"""Routes of vLLM's application: those that are shown to clients, and those that are not."""

from __future__ import annotations

import re
from typing import Final

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

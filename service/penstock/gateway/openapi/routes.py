"""The routes of the description, and its page, which loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.text import dump
from penstock.gateway.openai.routes import is_answered
from penstock.gateway.openapi.document import document
from penstock.gateway.openapi.model_descriptions import Documents, add_models
from penstock.gateway.replies import JSON, Reply, reply
from penstock.gateway.router import Route, Target
from penstock.server.faces import Views
from penstock.settings import Feature

_PAGE = "text/html; charset=utf-8"
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
)
"""The page loads nothing but the description."""


class _Description:
    """The document as text, written anew where models tell something else than before."""

    def __init__(self, server: Views, *, openai: bool) -> None:
        self._server = server
        self._openai = openai
        self._told: Documents = {}
        self._text = b""

    async def text(self) -> bytes:
        told = await self._server.openai_descriptions() if self._openai else {}
        if not self._text or told != self._told:
            described = document(openai=self._openai)
            if self._openai:
                add_models(described, told, is_answered)
            self._told, self._text = told, dump(described)
        return self._text


def docs_routes(server: Views, *, openai: bool) -> Iterator[Route]:
    """`/openapi.json` and `/docs`; with `openai`, models are asked what they serve of that API."""
    page = (files(__package__) / "page.html").read_bytes()
    description = _Description(server, openai=openai)

    async def openapi(_: HttpCall, __: Target) -> Reply:
        return reply(await description.text(), content_type=JSON)

    async def docs(_: HttpCall, __: Target) -> Reply:
        answer = reply(page, content_type=_PAGE)
        answer.add_header("content-security-policy", _POLICY)
        return answer

    yield Route("/openapi\\.json", ("GET",), openapi, Feature.METADATA)
    yield Route("/docs", ("GET",), docs, Feature.METADATA)

"""A load report in a header of generate's replies, for clients that ask for one (HG-13, HG-14)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.server.load_meter import FORMAT, REPORT, LoadMeter
from penstock.server.server import InferenceServer


def with_load(reply: ASGIApp, request: Request, server: InferenceServer) -> ASGIApp:
    """The reply, with a report of `json` or `text` if the request's header wants one.

    There is none without a model that tells of its KV cache.
    """
    form = request.headers.get(FORMAT)
    return reply if form is None else _ReportingReply(reply, form, server.load_meter)


class _ReportingReply:
    """A reply that has a load report in a header."""

    def __init__(self, reply: ASGIApp, form: str, meter: LoadMeter) -> None:
        self._reply = reply
        self._form = form
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def reporting(message: Message) -> None:
            if message["type"] == "http.response.start":
                text = self._meter.report().kv_cache_text(self._form)
                if text is not None:
                    message["headers"] = [*message["headers"], (REPORT.encode(), text.encode())]
            await send(message)

        await self._reply(scope, receive, reporting)

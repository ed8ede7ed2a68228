"""A load report in a header of generate's replies, for clients that ask for one (HG-13, HG-14)."""

from __future__ import annotations

from penstock.gateway.connections.http_call import HttpCall
from penstock.http1.requests import Field
from penstock.server.faces import Inference
from penstock.server.load_meter import FORMAT, REPORT


def load_header(call: HttpCall, server: Inference) -> list[Field]:
    """The field with a report of `json` or `text`, if the request's header wants one.

    There is none without a model that reports its KV cache.
    """
    form = call.headers.get(FORMAT)
    text = None if form is None else server.load_meter.report().kv_cache_text(form)
    return [] if text is None else [(REPORT.encode(), text.encode())]

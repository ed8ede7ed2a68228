"""Calls of a cloud service as calls of the gateway's own routes, and their replies translated back.

The length of the JSON before binary tensors stands in the content type there, since such services
pass few headers on.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.errors import InvalidRequestError
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.replies import PLAIN, Refusal, Reply
from penstock.gateway.router import Router

_LENGTH = "inference-header-content-length"
_LENGTH_FIELD = _LENGTH.encode()


class Redirect:
    """Sends calls to routes of the gateway; `kind` is the service's part of its media type."""

    def __init__(self, router: Router, kind: str) -> None:
        self._router = router
        self._media_type = f"application/vnd.{kind}.binary+json;json-header-size="

    def start(
        self,
        call: HttpCall,
        method: str,
        path: str,
        translate: Callable[[Reply], Reply] | None = None,
    ) -> None:
        """Answer a call as if it had been made to this path of the gateway.

        Whole replies pass through `translate` too, if there is one.
        """
        headers = {name: value for name, value in call.headers.items() if name != _LENGTH}
        content_type = headers.get("content-type", "")
        at = content_type.find(self._media_type)
        if at > 0:
            text = f"expect MIME type for binary data starts with '{self._media_type}', got: "
            call.send(Refusal(InvalidRequestError(text + content_type), PLAIN))
            return
        if at == 0:
            headers[_LENGTH] = content_type.removeprefix(self._media_type)
        head = call.head
        head.headers, head.method, head.path = headers, method, path
        call.translate_reply = self._translate
        if translate is not None:
            call.translate_reply = lambda reply: translate(self._translate(reply))
        self._router.start(call)

    def _translate(self, reply: Reply) -> Reply:
        """The reply with the length of its JSON in the content type."""
        for name, value in reply.fields:
            if name == _LENGTH_FIELD:
                dropped = (b"content-type", _LENGTH_FIELD)
                reply.fields = [field for field in reply.fields if field[0] not in dropped]
                reply.add_header("content-type", self._media_type + value.decode("ascii"))
                break
        return reply

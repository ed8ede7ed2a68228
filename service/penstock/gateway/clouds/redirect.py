"""Calls of a cloud service as calls of the gateway's own routes, and their replies translated back.

The length of the JSON before binary tensors stands in the content type there, since such services
pass few headers on; the header of the gateway's own answers stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.access.gate import AccessGate
from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.inference.body_memory import JSON_LENGTH, BodyMemory
from penstock.gateway.replies import PLAIN, Refusal, Reply
from penstock.gateway.router import Router
from penstock.http1.requests import RequestHead
from penstock.settings import Feature

_LENGTH_FIELD = JSON_LENGTH.encode()


class Redirect:
    """Sends calls to routes of the gateway; `kind` is the service's part of its media type.

    `model_of` says which model a call is for, before its body has come.
    """

    def __init__(
        self,
        router: Router,
        kind: str,
        memory: BodyMemory,
        model_of: Callable[[RequestHead], str],
    ) -> None:
        self._router = router
        self._model_of = model_of
        self._memory = memory
        self._media_type = f"application/vnd.{kind}.binary+json;json-header-size="

    def reserve(self, head: RequestHead) -> memoryview | None:
        """Memory for the body of a request, as `BodyMemory.reserve`."""
        content_type = head.headers.get("content-type", "")
        if not content_type.startswith(self._media_type):
            return None
        text = content_type.removeprefix(self._media_type)
        return self._memory.behind_json(head, text, self._model_of(head))

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
        headers = {name: value for name, value in call.headers.items() if name != JSON_LENGTH}
        content_type = headers.get("content-type", "")
        at = content_type.find(self._media_type)
        if at > 0:
            text = f"expect MIME type for binary data starts with '{self._media_type}', got: "
            call.send(Refusal(InvalidRequestError(text + content_type), PLAIN))
            return
        if at == 0:
            headers[JSON_LENGTH] = content_type.removeprefix(self._media_type)
        call.redirect(method, path, headers)
        call.translate_reply = self._translate
        if translate is not None:
            call.translate_reply = lambda reply: translate(self._translate(reply))
        self._router.start(call)

    def _translate(self, reply: Reply) -> Reply:
        """The reply with the length of its JSON in the content type."""
        for name, value in reply.fields:
            if name == _LENGTH_FIELD:
                reply.fields = [field for field in reply.fields if field[0] != b"content-type"]
                reply.add_header("content-type", self._media_type + value.decode("ascii"))
                break
        return reply


def default_for(gate: AccessGate | None, call: HttpCall, model: str, unseen: str) -> str:
    """The model of a call that names none; `unseen` for a caller who may not know of it.

    Who may make no such call is refused by the route, which names no model.
    """
    if gate is None:
        return model
    try:
        permit = gate.permit(call.headers, Feature.INFERENCE, call.certificate)
    except InferenceError:
        return model
    return model if permit.sees(model) else unseen

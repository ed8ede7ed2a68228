"""`EventStream`: what vLLM's application sends, without `[DONE]` behind an error."""

from __future__ import annotations

from typing import Final

from penstock_backends.language_model.asgi import Message, Send

_ERROR: Final = b'data: {"error": '
_DONE: Final = b"data: [DONE]"


class EventStream:
    """Passes messages of one answer on; an event of an error is the last of its stream.

    vLLM ends every stream with `[DONE]`, which says to clients that the answer is complete. Each of
    its events is a message of its own.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._failed = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        body = message.get("body", b"")
        self._failed = self._failed or body.startswith(_ERROR)
        if self._failed and body.startswith(_DONE):
            message = {**message, "body": b""}
        await self._send(message)

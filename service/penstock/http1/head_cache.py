"""A cache of heads: clients send the same bytes again and again, with other bodies behind them."""

from __future__ import annotations

from penstock.http1.request_head import RequestHead

_MOST = 256
"""Heads that are cached."""

_LONGEST = 2048
"""Bytes of the longest head that is cached."""

_END = b"\r\n\r\n"


class HeadCache:
    """Heads by their bytes, of all connections with the same limits.

    A cached head is of version 1.1, has a body of known length, keeps the connection, and asks for
    nothing else of it: after such a request a parser is where it was before.
    """

    def __init__(self) -> None:
        self._heads: dict[bytes, RequestHead] = {}

    def find(self, data: bytes) -> tuple[RequestHead, int] | None:
        """The head that these bytes begin with, if they are one request, and its length."""
        end = data.find(_END, 0, _LONGEST)
        if end < 0:
            return None
        size = end + len(_END)
        head = self._heads.get(data[:size])
        if head is None or head.content_length != len(data) - size:
            return None
        return head.copy(), size

    def add(self, data: bytes, head: RequestHead) -> None:
        """Cache a head that a parser has made of these bytes, from the first to the last."""
        if len(data) > _LONGEST or data.find(_END) != len(data) - len(_END):
            return
        if head.version != "1.1" or not head.keep_alive or not head.content_length:
            return
        if head.expects_continue or "upgrade" in head.headers or head.method == "CONNECT":
            return
        if len(self._heads) >= _MOST:
            self._heads.clear()
        self._heads[data] = head.copy()

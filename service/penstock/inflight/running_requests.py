"""`RunningRequests`: requests in flight by the ids that their clients know them by."""

from __future__ import annotations

from penstock.core.errors import RequestCancelledError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream


class RunningRequests:
    """Streams by the `id` of their requests, and by the `call_id` of the calls they came with.

    Ids are the clients', so several requests may share one; requests without any are not kept.
    """

    def __init__(self) -> None:
        self._entries: dict[str, dict[ResponseStream, InferenceRequest]] = {}

    def add(self, request: InferenceRequest, stream: ResponseStream) -> None:
        """Keep a request that was admitted, until `remove`."""
        if request.id:
            self._entries.setdefault(request.id, {})[stream] = request
        if request.call_id:
            self._entries.setdefault(request.call_id, {})[stream] = request

    def remove(self, request: InferenceRequest, stream: ResponseStream) -> None:
        """Forget a request, which has ended."""
        self._forget(request.id, stream)
        self._forget(request.call_id, stream)

    def _forget(self, name: str, stream: ResponseStream) -> None:
        named = self._entries.get(name)
        if named is not None:
            named.pop(stream, None)
            if not named:
                del self._entries[name]

    def cancel(self, name: str, tenant: str | None = None) -> int:
        """Cancel the requests of this id; how many there were.

        With a `tenant`, those of others are left alone, as if they were not there.
        """
        named = self._entries.get(name, {})
        chosen = [
            stream
            for stream, request in named.items()
            if tenant is None or (request.sender is not None and request.sender.tenant == tenant)
        ]
        for stream in chosen:
            stream.abort(RequestCancelledError())
        return len(chosen)

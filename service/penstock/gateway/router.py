"""The HTTP router: matches paths as sent, checks restrictions, turns errors into replies.

A request's scope is made here: its deadline, forwarded headers, cancellation on disconnect.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus

from penstock.access.current import NO_PERMIT, enter, leave
from penstock.access.gate import AccessGate
from penstock.core.errors import InferenceError, InternalError, InvalidRequestError, shortened
from penstock.core.log.log_fields import request_fields
from penstock.core.log.log_throttle import log_fault
from penstock.core.request import CALL_ID, InferenceRequest, ParameterValue, RequestScope
from penstock.core.stream import ResponseStream
from penstock.gateway.call_guard import guards
from penstock.gateway.connections.http_call import ClientDisconnectError, HttpCall
from penstock.gateway.replies import JSON, PLAIN, Refusal, Reply, error_reply, method_not_allowed
from penstock.header_forward import HeaderForward, header_forward
from penstock.protocol.credentials import CREDENTIAL_HEADERS
from penstock.scheduling.tokens.tenants import Tenants
from penstock.settings import Feature, Restriction

logger = logging.getLogger(__name__)

_REMEMBERED = 1024
"""Paths whose routes are remembered."""

_LONGEST = 256
"""Characters of the longest of them."""


@dataclass(frozen=True, slots=True)
class Target:
    """The parameters in a path, such as the model's name; empty where absent."""

    model: str = ""
    version: str = ""
    repository: str = ""
    region: str = ""
    action: str = ""
    adapter: str = ""
    alias: str = ""


Handler = Callable[[HttpCall, Target], Awaitable[Reply | None]]
"""Returns the reply to send; `None` if it has answered the call itself."""

Starter = Callable[[HttpCall, Target], bool]
"""Begins to answer a call, which it does by callbacks; false if that is left to the handler.

Errors that it raises are replies.
"""


def _refusal(error: InferenceError) -> Reply:
    return Refusal(error, PLAIN)


@dataclass(frozen=True, slots=True)
class Route:
    """A path pattern, whose groups are fields of `Target`, and its handler.

    `content_type` is that of errors that the handler raises. `start` may answer instead of the
    handler where the whole body has come; a small one is waited for. The access policy is asked
    for `asked`, if that is another group than `feature`, and `refuse` makes the reply of a refusal.
    """

    path: str
    methods: Sequence[str]
    handler: Handler
    feature: Feature
    content_type: str = JSON
    start: Starter | None = None
    asked: Feature | None = None
    refuse: Callable[[InferenceError], Reply] = _refusal


class Router:
    """Answers calls; the first route that matches the path is used (H-25, H-26).

    Web pages of `origins` may make calls that change the server. With a `gate`, handlers run for
    the holder of its permit.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        restrictions: Sequence[Restriction] = (),
        origins: Collection[str] = (),
        gate: AccessGate | None = None,
    ) -> None:
        if gate is not None:
            routes = [_for_caller(route) for route in routes]
        self._routes = [(re.compile(route.path), route) for route in routes]
        self._guards = guards(restrictions, origins, gate)
        self._found: dict[str, tuple[Route, Target]] = {}

    def start(self, call: HttpCall) -> None:
        """Begin to answer a call."""
        logger.debug("HTTP request: %s %s", call.method, call.path)
        found = self._found.get(call.path) or self._find(call.path)
        if found is None:
            call.send(error_reply("Not Found", HTTPStatus.NOT_FOUND, PLAIN))
            return
        route, target = found
        call.feature = route.feature
        guard = self._guards.get(route.feature)
        if guard is not None and (refusal := guard.refusal(call)) is not None:
            call.send(route.refuse(refusal))
        elif call.method not in route.methods:
            call.send(method_not_allowed(route.methods, route.content_type))
        elif route.start is not None and call.comes_soon:
            call.when_received(partial(_begin, call, route, target))
        else:
            _begin(call, route, target)

    def _find(self, path: str) -> tuple[Route, Target] | None:
        for pattern, route in self._routes:
            if matched := pattern.fullmatch(path):
                parts = {name: value or "" for name, value in matched.groupdict().items()}
                found = route, Target(**parts)
                if len(path) <= _LONGEST:
                    if len(self._found) >= _REMEMBERED:
                        self._found.clear()
                    self._found[path] = found
                return found
        return None


def _for_caller(route: Route) -> Route:
    """The route, with a handler that runs for the holder of the call's permit."""
    handle, begin = route.handler, route.start

    async def handler(call: HttpCall, target: Target) -> Reply | None:
        enter(call.permit or NO_PERMIT)
        return await handle(call, target)

    def start(call: HttpCall, target: Target) -> bool:
        token = enter(call.permit or NO_PERMIT)
        try:
            return begin is not None and begin(call, target)
        finally:
            leave(token)

    feature = route.asked or route.feature
    return replace(route, handler=handler, start=begin and start, feature=feature)


def _begin(call: HttpCall, route: Route, target: Target) -> None:
    """Answer by callbacks where the route can, else by a coroutine."""
    started = False
    if route.start is not None and call.body.complete:
        try:
            started = route.start(call, target)
        except Exception as error:  # becomes a reply
            call.send(_failure(call, route, error))
            return
    if not started:
        call.run(_handle(call, route, target))


async def _handle(call: HttpCall, route: Route, target: Target) -> None:
    answer: Reply | None
    try:
        answer = await route.handler(call, target)
    except ClientDisconnectError:
        return
    except Exception as error:  # becomes a reply
        answer = _failure(call, route, error)
    if answer is not None:
        call.send(answer)


def _failure(call: HttpCall, route: Route, error: Exception) -> Reply:
    """The reply for what a handler has raised: the client gets an error, the log the details."""
    if isinstance(error, InferenceError):
        return Refusal(error, route.content_type)
    inference = call.inference
    fields = None if inference is None else request_fields(inference)
    log_fault(logger, error, "%s %s failed", call.method, shortened(call.path), extra=fields)
    return Refusal(InternalError("unexpected error, see the server's log"))


HEADER = "request-timeout"
"""Header with a deadline in seconds, fractions allowed; then the request is cancelled with 504."""


def fill_scope(scope: RequestScope, call: HttpCall, tenants: Tenants | None) -> None:
    """Note a request's headers, its deadline, the id of its call, and its sender."""
    headers = scope.headers = call.headers
    if HEADER in headers:
        scope.deadline = _deadline(headers[HEADER])
    if CALL_ID in headers:
        scope.call_id = headers[CALL_ID]
    if tenants is not None:
        scope.sender = tenants.sender(headers)


def _deadline(text: str) -> float:
    """The time on the loop's clock, in so many seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise InvalidRequestError(
            f"header '{HEADER}' must be a number of seconds above 0, got '{text}'"
        )
    return asyncio.get_running_loop().time() + seconds


def forwarded_headers(
    pattern: str, restrictions: Iterable[Restriction], gate: AccessGate | None
) -> ForwardedHeaders | None:
    """The forwarding of headers whose names match a pattern; `None` if it is empty."""
    credentials = () if gate is None else CREDENTIAL_HEADERS
    forward = header_forward(pattern, [*(one.key for one in restrictions), *credentials])
    return None if forward is None else ForwardedHeaders(forward)


class ForwardedHeaders:
    """Forwards headers that were chosen by a pattern, and no secrets."""

    def __init__(self, forward: HeaderForward) -> None:
        self._forward = forward

    def added_to(self, inference: InferenceRequest, call: HttpCall) -> InferenceRequest:
        """`inference` with headers of `call` among its parameters; refuses reserved ones."""
        chosen = self.of(call)
        if not chosen:
            return inference
        parameters = {**inference.parameters, **chosen}
        return inference._replace(parameters=parameters, template=None)

    def of(self, call: HttpCall) -> Mapping[str, ParameterValue]:
        """The headers of `call` that become parameters; refuses reserved ones."""
        pairs = ((name.decode("latin-1"), _text(value)) for name, value in call.fields)
        return self._forward.select(pairs)


def _text(value: bytes) -> str:
    """The value of a field: UTF-8, as models get it from Triton, and Latin-1 where it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@contextmanager
def closed_on_disconnect(stream: ResponseStream, call: HttpCall) -> Iterator[ResponseStream]:
    """Cancellation on disconnect: closes `stream` when the client leaves, and on exit."""
    call.on_disconnect(stream.close)
    try:
        yield stream
    finally:
        call.on_disconnect(None)
        stream.close()

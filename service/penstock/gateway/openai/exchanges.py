"""`ExchangeEndpoint`: requests to OpenAI's API that models answer, by the model that they name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from penstock.core.errors import InferenceError
from penstock.core.http_exchange import Headers, HttpExchange
from penstock.core.request import CALL_ID, InferenceRequest, ParameterValue, RequestScope
from penstock.gateway.connections.http_call import ClientDisconnectError, HttpCall
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.observability.traced_request import begin_timeline, ending
from penstock.gateway.openai.answer_relay import AnswerRelay
from penstock.gateway.openai.errors import OpenAiError, error_reply
from penstock.gateway.openai.model_names import FoundModel, ModelNames
from penstock.gateway.openai.request_body import RequestBodies, RequestBody
from penstock.gateway.replies import Reply, json_reply
from penstock.gateway.router import Target, fill_scope, forwarded_headers
from penstock.protocol.credentials import CREDENTIAL_HEADERS
from penstock.server.faces import Inference
from penstock.settings import Feature, HttpSettings, OpenAiSettings, restriction_of

_CHOSEN: Final = frozenset(
    ("accept", "authorization", "baggage", "content-type", "traceparent", "tracestate")
)
_CHOSEN_PREFIXES: Final = ("x-", "openai-", "anthropic-")
_LONGEST_ID: Final = 128
_STRANGER: Final = (
    "requests are stopped by the tenant that sent them (--tenants), shown by its API key, or where"
    " request-control is restricted (--http-restricted-api, --openai-restricted-api)"
)
_FOUND: Final = ("model", "adapter", "default_length", "unknown_fields")
"""Parameters by which applications learn what the server has found in a request."""


class ExchangeEndpoint:
    """Hands requests to the applications of models, and their answers back."""

    def __init__(
        self,
        server: Inference,
        http: HttpSettings,
        settings: OpenAiSettings,
        bodies: JsonBodies,
        names: ModelNames,
    ) -> None:
        self._server = server
        self._names = names
        self._settings = settings
        self._bodies = RequestBodies(bodies, settings.default_max_tokens)
        self._keep_alive = http.event_keep_alive_secs
        restrictions = (*http.restrictions, *settings.restrictions)
        gate = server.access
        self._forward = forwarded_headers(http.header_forward_pattern, restrictions, gate)
        self._secret = frozenset(() if gate is None else CREDENTIAL_HEADERS)
        restricted = restriction_of(Feature.REQUEST_CONTROL, restrictions)
        self._restricted = restricted is not None or (gate is not None and server.tenants is None)

    async def answer(self, call: HttpCall, _: Target) -> Reply | None:
        """Answer a request by the application of its model."""
        request_id = _request_id(call)
        try:
            await self._begin(call, request_id)
        except ClientDisconnectError:
            raise
        except OpenAiError as error:
            refusal = error.reply()
        except InferenceError as error:
            refusal = error_reply(error)
        else:
            return None
        refusal.add_header(CALL_ID, request_id)
        return refusal

    async def _begin(self, call: HttpCall, request_id: str) -> None:
        read = await self._bodies.read(call)
        found = self._names.find(read.model)
        if found.full_name != read.model:
            read = read.renamed(found.full_name)
        request = self._request(call, read, found, request_id)
        call.inference = request
        server = self._server
        timeline = begin_timeline(server.tracer, call, request, call.opened)
        with nullcontext() if timeline is None else ending(timeline):
            stream = found.model.exchange(request)
        waits = read.streamed and server.resident(found.name) is False
        AnswerRelay(call, stream, timeline, request_id, self._keep_alive).start(waits=waits)

    def _request(
        self, call: HttpCall, read: RequestBody, found: FoundModel, request_id: str
    ) -> InferenceRequest:
        query = call.head.query.decode("latin-1")
        headers = (*_chosen(call, self._secret), (CALL_ID, request_id))
        exchange = HttpExchange(call.method, call.path, query, headers, read.body)
        forwarded = {} if self._forward is None else self._forward.of(call)
        parameters = self._parameters(forwarded, read, found.adapter)
        request = InferenceRequest(
            found.name,
            id=request_id,
            parameters=parameters,
            exchange=exchange,
            scope=RequestScope(),
        )
        fill_scope(request.scope, call, self._server.tenants)
        return request

    def _parameters(
        self, forwarded: Mapping[str, ParameterValue], read: RequestBody, adapter: str
    ) -> dict[str, ParameterValue]:
        """The parameters, where the server's own replace forwarded headers of these names."""
        found = {name: one for name, one in forwarded.items() if name not in _FOUND}
        found["model"] = read.model
        if read.limited:
            found["default_length"] = True
        if adapter:
            found["adapter"] = adapter
        if self._settings.unknown_fields == "ignore":
            found["unknown_fields"] = "ignore"
        return found

    # -- requests by their ids ----------------------------------------------------------------

    async def cancel(self, call: HttpCall, target: Target) -> Reply:
        """Stop the requests with an id, of whichever protocol: with tenants, only the sender's.

        Ids are easily guessed, so that strangers stop nothing.
        """
        name, tenant = unquote(target.action), self._tenant(call)
        if not (tenant or self._restricted):
            return OpenAiError(_STRANGER, 403).reply()
        if not self._server.cancel(name, tenant):
            return OpenAiError(f"no request '{name[:_LONGEST_ID]}' is running", 404).reply()
        return json_reply({"id": name, "object": "request.cancelled", "cancelled": True})

    def _tenant(self, call: HttpCall) -> str | None:
        """The tenant that a call comes from, where the server has any; empty if nothing shows it.

        Who knows a restriction's secret is believed whatever header says it.
        """
        tenants = self._server.tenants
        if tenants is None:
            return None
        headers = call.headers
        return tenants.sender(headers).tenant if self._restricted else tenants.proven(headers)


def _request_id(call: HttpCall) -> str:
    """The client's own id where it is plain text, else a new one."""
    given = call.headers.get(CALL_ID, "")
    plain = given.isascii() and given.isprintable() and 0 < len(given) <= _LONGEST_ID
    return given if plain else uuid4().hex


def _chosen(call: HttpCall, secret: Collection[str]) -> Headers:
    """The headers that are a model's business; none that is a secret of the server's."""
    headers: Mapping[str, str] = call.headers
    return tuple(
        (name, value)
        for name, value in headers.items()
        if (name in _CHOSEN or name.startswith(_CHOSEN_PREFIXES))
        and name != CALL_ID
        and name not in secret
    )

"""`OpenAiModel`: a language model of a server of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.backend import AsgiApp, Histogram, InferenceRequest, ModelConfig, Outcome
from penstock_backends.language_model import EngineStatistics, read_request, stream_interval
from penstock_backends.remote.fleet import Fleet
from penstock_backends.remote.http_endpoint import HttpEndpoint
from penstock_backends.remote.openai_answers import ask
from penstock_backends.remote.openai_generation import Asked, OpenAiGeneration
from penstock_backends.remote.openai_relay import OpenAiRelay
from penstock_backends.remote.settings import RemoteSettings

_LONGEST_LIST = 4 << 20
"""Bytes of a list of models."""


class OpenAiModel:
    """Asks for completions, or chats, and relays the exchanges of OpenAI's own clients."""

    def __init__(self, settings: RemoteSettings, config: ModelConfig) -> None:
        self.settings = settings
        self.statistics = EngineStatistics()
        context = settings.tls(["http/1.1"])
        self.fleet = Fleet([HttpEndpoint(one, settings, context) for one in settings.addresses])
        interval = stream_interval(config)
        self._asked = Asked(settings, self.fleet, self.statistics, interval)

    async def start(self) -> None:
        """Look at all addresses, and go on with it; a remote that is away is no failure."""
        await self.fleet.look(self.probe)
        self.fleet.watch(self.probe)

    async def probe(self, endpoint: HttpEndpoint) -> str:
        """Why an address does not serve the model now; empty if it does."""
        status, answer = await ask(endpoint, "/models", _LONGEST_LIST)
        if status.code == 12 or (status.code == 5 and not status.ours):  # it has no list
            return ""
        if status.code:
            return status.message
        names = _names(answer)
        if names and self.settings.model not in names:
            shown = ", ".join(sorted(names)[:5])
            return f"model '{self.settings.model}' is none of its models: {shown}"
        return ""

    def unready(self) -> str:
        """Why no call can be made; empty if one can."""
        return self.fleet.unready()

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the addresses, and of a language model."""
        return {**self.fleet.metrics(), **self.statistics.metrics()}

    def histograms(self) -> Mapping[str, Histogram]:
        """Times and sizes of generations."""
        return self.statistics.distributions()

    def application(self) -> AsgiApp:
        """The relay for clients of OpenAI's API."""
        return OpenAiRelay(self.settings, self.fleet)

    async def close(self) -> None:
        """End all calls and connections."""
        await self.fleet.close()

    def infer(self, request: InferenceRequest) -> Outcome:
        """Generate; raises `InferenceError` for what cannot be asked, or where nobody is up."""
        generation = OpenAiGeneration(self._asked, request, read_request(request))
        generation.begin()
        return generation.delivery.stream


def _names(answer: Any) -> set[str]:
    """The names in a list of models; none if it is no such list."""
    if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
        return set()
    return {str(one["id"]) for one in answer["data"] if isinstance(one, dict) and "id" in one}

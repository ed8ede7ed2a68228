"""Admission in tokens, for models whose backend reports tokens: on by limits or by tenants."""

from __future__ import annotations

from penstock.core.backend import Backend, WithApplication
from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError
from penstock.scheduling.tokens.limits import MAX_REQUESTS, MAX_TOKENS, QueueLimits
from penstock.scheduling.tokens.tenants import FairnessPolicy
from penstock.scheduling.tokens.token_queue import TokenQueue


def token_queue(
    backend: type[Backend], config: ModelConfig, fairness: FairnessPolicy | None
) -> TokenQueue | None:
    """The queue in tokens of a model, which waits for nothing without limits and tenants: `None`.

    Raises `ConfigError` for limits that are not numbers, or of a model without tokens.
    """
    limits = QueueLimits.from_config(config)
    if not backend.tells_tokens(config):
        for name in (MAX_REQUESTS, MAX_TOKENS):
            if config.parameter(name) is not None:
                raise ConfigError(
                    f"parameter '{name}' is for language models: backend '{config.backend}' does"
                    " not report tokens"
                )
        return None
    if not limits and fairness is None:
        return None
    return TokenQueue(config.name, limits, fairness)


def wants_usage(backend: type[Backend], config: ModelConfig, *, tenants: bool) -> bool:
    """Whether the model's processes are to report the tokens of each request.

    With tenants, those of a backend with an OpenAI application do, whatever it has of tokens.
    """
    if tenants and issubclass(backend, WithApplication):
        return True
    return backend.tells_tokens(config) and (tenants or bool(QueueLimits.from_config(config)))

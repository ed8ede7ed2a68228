"""`RedisSettings`: the options of `--cache-config redis,...` (contract RC-07)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from penstock.core.errors import ConfigError

_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_PASSWORDS = {"user": "TRITONCACHE_REDIS_USERNAME", "password": "TRITONCACHE_REDIS_PASSWORD"}
"""Environment variables of settings that should not be on a command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """Options of the Redis client; `wait_timeout` limits the wait for a free connection.

    Timeouts are in milliseconds; 0 means none.
    """

    host: str
    port: int
    user: str = "default"
    password: str = ""
    db: int = 0
    connect_timeout: int = 0
    socket_timeout: int = 0
    pool_size: int = 1
    wait_timeout: int = 1000
    tls_enabled: bool = False
    cert: str = ""
    key: str = ""
    cacert: str = ""
    cert_dir: str = ""
    sni: str = ""

    @classmethod
    def from_options(
        cls, given: Mapping[str, str], environment: Mapping[str, str] = os.environ
    ) -> RedisSettings:
        """Parse options, with defaults from the environment; raises `ConfigError`."""
        secret = {name: environment[key] for name, key in _PASSWORDS.items() if key in environment}
        types = {field.name: str(field.type) for field in fields(cls)}
        for name in given:
            if name not in types:
                known = ", ".join(types)
                raise ConfigError(f"unknown setting '{name}' of the redis cache; it has: {known}")
        for name in ("host", "port"):
            if name not in given:
                raise ConfigError(f"the redis cache needs the setting '{name}'")
        values = {name: _value(name, types[name], text) for name, text in given.items()}
        return cls(**{**secret, **values})


def _value(name: str, kind: str, text: str) -> Any:
    if kind == "int":
        if not text.isdecimal():
            raise ConfigError(f"redis cache: '{name}' must be a whole number, got '{text}'")
        return int(text)
    if kind == "bool":
        if text.lower() not in _FLAGS:
            raise ConfigError(f"redis cache: '{name}' must be true or false, got '{text}'")
        return _FLAGS[text.lower()]
    return text

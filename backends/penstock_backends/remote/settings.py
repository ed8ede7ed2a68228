"""Settings of a remote model, from its configuration: its addresses, its name there, limits."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from penstock.backend import ConfigError, ModelConfig, suggestion

Value = TypeVar("Value", int, float)

KSERVE, OPENAI = "kserve", "openai"
_PROTOCOLS = (KSERVE, "vllm", "vllm_inference", "sglang", "sglang_runtime", "trtllm")

_PORTS = {"grpc": 8001, "grpcs": 8001, "http": 80, "https": 443}
_NONE: Mapping[str, str] = {}
_HEADER = "header."
_KEYS = (
    "address",
    "remote_model",
    "remote_version",
    "connect_timeout_ms",
    "health_interval_ms",
    "silence_ms",
    "retries",
    "max_response_bytes",
    "ca_file",
    "chat",
    "protocol",
    "tokenizer",
    "prefix_tokens",
    "shared_memory_bytes",
)
_HEADER_NAME = re.compile(r"[0-9a-z_.\-]+")
_MOST_ADDRESSES = 256
_LARGEST = (1 << 31) - 1


class Address(NamedTuple):
    """Where a server listens: `grpc://HOST:PORT`, with TLS `grpcs`; `path` is of HTTP only."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def secure(self) -> bool:
        """Whether there is TLS."""
        return self.scheme in ("grpcs", "https")

    @property
    def authority(self) -> str:
        """Host and port, as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """The parameters of a remote model. Times are in seconds, sizes in bytes.

    `silence` is how long a server with calls under way may send nothing, not even an answer to a
    question after its health, until the connection is given up. `headers` go with every call, a key
    of `keys` to its address only.
    """

    addresses: tuple[Address, ...]
    model: str
    version: str = ""
    connect_timeout: float = 5.0
    health_interval: float = 2.0
    silence: float = 30.0
    retries: int = 2
    max_response: int = 1 << 30
    headers: tuple[tuple[str, str], ...] = ()
    keys: Mapping[Address, str] = field(default_factory=dict)
    ca_file: str = ""
    chat: bool = False
    grpc_protocol: str = KSERVE
    tokenizer: str = ""
    prefix_tokens: int = 0
    """How many tokens of prompts choose the address; 0 for none."""
    shared_memory: int = 0
    """Bytes of memory for inputs that a server on this host has as well; 0 for none."""
    names_model: bool = False
    """Whether `model` is what the configuration calls it."""

    @property
    def protocol(self) -> str:
        """`kserve`, `openai`, or the name of an engine: all addresses have one."""
        return OPENAI if self.addresses[0].scheme.startswith("http") else self.grpc_protocol

    def fields(self, address: Address) -> list[tuple[bytes, bytes]]:
        """The headers of calls to an address, with its key."""
        fields = [(key.encode(), value.encode()) for key, value in self.headers]
        if key := self.keys.get(address._replace(path="")):
            fields.append((b"authorization", b"Bearer " + key.encode()))
        return fields

    def tls(self, protocols: list[str]) -> ssl.SSLContext | None:
        """The context of connections with TLS; `None` without. Reads files."""
        if not self.addresses[0].secure:
            return None
        context = ssl.create_default_context(cafile=self.ca_file or None)
        context.set_alpn_protocols(protocols)
        return context


def read_settings(config: ModelConfig, backend: Mapping[str, str] = _NONE) -> RemoteSettings:
    """The settings of a model; raises `ConfigError` that names the parameter.

    `backend` are the `--backend-config` values: `keys` is a file with secrets, which no model's
    configuration can name, so that none can send them elsewhere.
    """
    given = {
        name: parameter.string_value
        for name, parameter in config.parameters.items()
        if not name.startswith("penstock.")
    }
    for name in given:
        if name not in _KEYS and not name.startswith(_HEADER):
            raise ConfigError(
                f"the remote backend has no parameter '{name}'{suggestion(name, _KEYS)}"
            )
    return RemoteSettings(
        addresses=_addresses(given.get("address", "")),
        model=given.get("remote_model") or config.name,
        version=given.get("remote_version", ""),
        connect_timeout=_milliseconds(given, "connect_timeout_ms", 5.0),
        health_interval=_milliseconds(given, "health_interval_ms", 2.0),
        silence=_milliseconds(given, "silence_ms", 30.0),
        retries=_number(given, "retries", int, 2, 0, 100),
        max_response=_number(given, "max_response_bytes", int, 1 << 30, 1, _LARGEST),
        headers=_headers(given),
        keys=_keys(backend.get("keys", "")),
        ca_file=_file(given, "ca_file"),
        chat=_flag(given, "chat"),
        grpc_protocol=_protocol(given),
        tokenizer=given.get("tokenizer", ""),
        prefix_tokens=_prefix_tokens(given),
        shared_memory=_shared_memory(given),
        names_model="remote_model" in given,
    )


def _addresses(text: str) -> tuple[Address, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ConfigError(
            "the remote backend needs the parameter 'address', such as grpc://HOST:8001"
            " or http://HOST:8000/v1; several are separated by commas"
        )
    if len(parts) > _MOST_ADDRESSES:
        raise ConfigError(f"parameter 'address' has {len(parts)}, more than {_MOST_ADDRESSES}")
    found = tuple(dict.fromkeys(map(_address, parts)))
    if len({one.scheme for one in found}) > 1:
        raise ConfigError("parameter 'address': all addresses of a model have one scheme")
    return found


def _address(text: str) -> Address:
    written = text if "://" in text else f"grpc://{text}"
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"parameter 'address': '{text[:200]}': {error}") from None
    if parts.scheme not in _PORTS:
        known = ", ".join(_PORTS)
        raise ConfigError(
            f"parameter 'address': '{text[:200]}' has the scheme '{parts.scheme}', not one of"
            f" {known}"
        )
    if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"parameter 'address': '{text[:200]}' is not SCHEME://HOST:PORT")
    path = parts.path.rstrip("/")
    if path and parts.scheme.startswith("grpc"):
        raise ConfigError(f"parameter 'address': '{text[:200]}': gRPC has no path")
    if not path and parts.scheme.startswith("http"):
        path = "/v1"
    return Address(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], path)


def _headers(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    headers = []
    for name, value in given.items():
        if name.startswith(_HEADER):
            key = name[len(_HEADER) :].lower()
            if not _HEADER_NAME.fullmatch(key) or not value.isascii() or not value.isprintable():
                raise ConfigError(f"parameter '{name}' is not a header with a printable value")
            headers.append((key, value))
    return tuple(headers)


def _keys(path: str) -> Mapping[Address, str]:
    """The keys of servers: a line for each, its address and its key."""
    if not path:
        return {}
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--backend-config=remote,keys={path} cannot be read: {error}") from None
    keys: dict[Address, str] = {}
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 2 or not parts[1].isascii() or not parts[1].isprintable():
            raise ConfigError(f"'{path}', line {number}, is not ADDRESS KEY")
        keys[_address(parts[0])._replace(path="")] = parts[1]
    return keys


def _file(given: Mapping[str, str], name: str) -> str:
    path = given.get(name, "")
    if path and not Path(path).is_file():
        raise ConfigError(f"parameter '{name}': there is no file '{path}'")
    return path


def _protocol(given: Mapping[str, str]) -> str:
    name = given.get("protocol", KSERVE)
    if name not in _PROTOCOLS:
        known = ", ".join(_PROTOCOLS)
        raise ConfigError(f"parameter 'protocol' must be one of {known}, not '{name[:50]}'")
    return name


def _prefix_tokens(given: Mapping[str, str]) -> int:
    if "prefix_tokens" in given and given.get("protocol", KSERVE) == KSERVE:
        raise ConfigError("parameter 'prefix_tokens' is for the protocols of engines")
    return _number(given, "prefix_tokens", int, 0, 0, 1 << 20)


def _shared_memory(given: Mapping[str, str]) -> int:
    name = "shared_memory_bytes"
    if name in given and given.get("protocol", KSERVE) != KSERVE:
        raise ConfigError(f"parameter '{name}' is for the protocol kserve")
    return _number(given, name, int, 0, 0, 1 << 40)


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"parameter '{name}' must be true or false, not '{text[:50]}'")
    return text == "true"


def _milliseconds(given: Mapping[str, str], name: str, default: float) -> float:
    """A time in seconds, which the parameter gives in milliseconds."""
    return _number(given, name, float, default * 1000, 1, 86_400_000) / 1000


def _number(
    given: Mapping[str, str],
    name: str,
    kind: Callable[[str], Value],
    default: Value,
    low: float,
    high: float,
) -> Value:
    if name not in given:
        return default
    try:
        value = kind(given[name])
        good = low <= value <= high
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"parameter '{name}' must be a number from {low:.0f} to {high:.0f},"
            f" not '{given[name][:50]}'"
        )
    return value

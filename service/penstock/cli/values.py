"""Turns the text of one option into a value, or says what is wrong with it."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from penstock.settings import Feature, RateLimitResource, Restriction

E = TypeVar("E", bound=StrEnum)

Parser = Callable[[str], Any]
Setting = tuple[str, str, str]
"""Name (of a backend, a cache, a policy), key and value."""

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_PORTS = range(2**16)


class ValueRefused(Exception):  # noqa: N818
    """The value does not fit; `option` names the part of it where that is not the whole."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    lowered = value.lower()
    if lowered in ("true", "1"):
        return True
    if lowered in ("false", "0"):
        return False
    raise ValueRefused(f"invalid value for bool option: {value}")


def integer(value: str, bounds: range = _INT32) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", value):
        raise ValueRefused(f"Invalid option value. Got {value}")
    number = int(value)
    if number not in bounds:
        raise ValueRefused(f"Provided option value is out of bound. Got {value}")
    return number


def big_integer(value: str) -> int:
    return integer(value, _INT64)


def port(value: str) -> int:
    """0 lets the system choose."""
    return integer(value, _PORTS)


def decimal(value: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", value, re.IGNORECASE):
        raise ValueRefused(f"Invalid option value. Got {value}")
    return float(value)


def verbosity(value: str) -> int:
    """A level, or a boolean that means 1 or 0."""
    words = {"true": 1, "false": 0}
    return words[value.lower()] if value.lower() in words else integer(value)


def positive(message: str) -> Parser:
    def parse(value: str) -> int:
        number = big_integer(value)
        if number <= 0:
            raise ValueRefused(message)
        return number

    return parse


def infer_thread_count(value: str) -> int:
    number = integer(value)
    if not 2 <= number <= 128:
        raise ValueRefused(
            "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128."
        )
    return number


def model_config_name(value: str) -> str:
    if not value:
        raise ValueRefused("Error: empty argument for --model-config-name")
    return value


def one_of(name: str, *choices: str, fold: bool = True) -> Parser:
    """One of a few words; upper and lower case are the same where `fold` says so."""

    def parse(value: str) -> str:
        word = value.lower() if fold else value
        if word not in choices:
            raise ValueRefused(f"invalid argument for --{name}")
        return word

    return parse


def member_of(kind: type[E], name: str) -> Parser:
    def parse(value: str) -> E:
        try:
            return kind(value.lower())
        except ValueError:
            raise ValueRefused(f"invalid argument for --{name}") from None

    return parse


def pair(first: Parser, second: Parser, separator: str = ":") -> Parser:
    def parse(value: str) -> tuple[Any, Any]:
        left, found, right = value.partition(separator)
        if not found:
            raise ValueRefused(
                "Cannot parse pair option due to incorrect number of inputs."
                "--<pair option> argument requires format "
                f"<first>{separator}<second>. Found: {value}"
            )
        return first(left), second(right)

    return parse


def load_limit(value: str) -> tuple[int, float]:
    device, fraction = pair(integer, decimal)(value)
    problem = ""
    if device < 0:
        problem = f"expects device ID >= 0, got {device}"
    elif not 0 <= fraction <= 1:
        problem = f"expects limit fraction to be in range [0.0, 1.0], got {fraction:f}"
    if problem:
        raise ValueRefused(f"setting model load GPU limit: Invalid argument - {problem}")
    return device, fraction


def host_policy(value: str) -> Setting:
    format_ = "--host-policy option format is '<policy name>,<setting>=<value>'"
    setting = _setting(value, format_)
    if not setting[0]:
        raise ValueRefused(f"{format_}. Got {value}")
    if setting[1] not in ("numa-node", "cpu-cores"):
        raise ValueRefused(
            f"setting host policy: Unsupported - Unsupported host policy setting '{setting[1]}' "
            "is specified, supported settings are 'numa-node', 'cpu-cores'"
        )
    return setting


def backend_config(value: str) -> Setting:
    if value.startswith(","):
        raise ValueRefused(
            "No backend specified. --backend-config option format is <backend name>,"
            f"<setting>=<value> or <setting>=<value>. Got {value}"
        )
    return _setting(value, "--backend-config option format is '<backend name>,<setting>=<value>'")


def cache_config(value: str) -> Setting:
    if value.find(",") < 1:
        raise ValueRefused(
            "No cache specified. --cache-config option format is <cache name>,"
            f"<setting>=<value>. Got {value}"
        )
    return _setting(value, "--cache-config option format is '<cache name>,<setting>=<value>'")


def cache_size(value: str) -> Setting:
    return "local", "size", str(big_integer(value))


def metrics_config(value: str) -> tuple[str, str]:
    key, _, setting = value.partition("=")
    if not key or not setting or "," in key:
        raise ValueRefused(f"--metrics-config option format is <setting>=<value>. Got {value}")
    return key, setting


def rate_limit_resource(value: str) -> RateLimitResource:
    name, *numbers = value.lower().split(":")
    if not 1 <= len(numbers) <= 2:
        raise ValueRefused(
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
            f"'<resource_name>:<count>'. Got {value}"
        )
    return RateLimitResource(name, *map(integer, numbers))


def restriction(name: str, kind: str) -> Parser:
    """`<feature>[,<feature>]:<key>=<value>`, where `kind` is what the frontend calls a feature."""

    def feature(word: str) -> Feature:
        try:
            return Feature(word)
        except ValueError:
            raise ValueRefused(f"unknown restricted {kind} '{word}' ") from None

    def parse(value: str) -> Restriction:
        match = re.fullmatch(r"([^:]+):([^=]+)=(.+)", value)
        if not match:
            raise ValueRefused(
                f"--{name} option format is '<config name>:<setting>=<value>'. Got {value}"
            )
        features = [feature(word) for word in match[1].split(",")]
        refuse_repeated(features, kind)
        return Restriction(frozenset(features), match[2], match[3])

    return parse


def refuse_repeated(features: list[Feature], kind: str) -> None:
    for position, feature in enumerate(features):
        if feature in features[:position]:
            raise ValueRefused(
                f"restricted {kind} '{feature}' can not be specified in multiple config groups"
            )


def trace_level(value: str) -> str:
    level = value.lower()
    if level not in ("off", "timestamps", "tensors", "min", "max"):
        raise ValueRefused(f"invalid value for trace level option: {level}")
    return {"min": "timestamps", "max": "timestamps"}.get(level, level).upper()


def trace_mode(value: str) -> str:
    if value.lower() not in ("triton", "opentelemetry"):
        raise ValueRefused(
            f"invalid value for trace mode option: {value}. "
            'Available options are "triton" and "opentelemetry"'
        )
    return value.lower()


_TRACE_SETTINGS: dict[tuple[str, str], Parser] = {
    ("", "rate"): integer,
    ("", "level"): trace_level,
    ("", "count"): integer,
    ("", "mode"): trace_mode,
    ("triton", "file"): text,
    ("triton", "log-frequency"): integer,
}


def trace_config(value: str) -> tuple[str, str, Any]:
    """Mode (empty for settings of both modes), key and value."""
    if value.startswith(","):
        raise ValueRefused(
            "No trace mode specified. --trace-config option format is <trace mode>,"
            f"<setting>=<value> or <setting>=<value>. Got {value}"
        )
    mode, key, setting = _setting(
        value, "--trace-config option format is '<trace mode>,<setting>=<value>'"
    )
    mode = trace_mode(mode) if mode else ""
    if mode == "opentelemetry":
        return mode, key, setting
    option = f"trace-config {mode}{',' if mode else ''}{key}"
    if (mode, key) not in _TRACE_SETTINGS:
        raise ValueRefused("unknown trace setting", option)
    try:
        return mode, key, _TRACE_SETTINGS[mode, key](setting)
    except ValueRefused as refused:
        raise ValueRefused(str(refused), option) from None


def _setting(value: str, format_: str) -> Setting:
    """`<name>,<key>=<value>`, or without a name `<key>=<value>`."""
    head, comma, tail = value.partition(",")
    if not comma:
        head, tail = "", value
    key, _, setting = tail.partition("=")
    if not key or not setting:
        raise ValueRefused(f"{format_}. Got {value}")
    return head, key, setting

"""Parsers of option values with several parts, such as `<name>,<key>=<value>`."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from penstock.cli.values import (
    Parser,
    ValueRefused,
    big_integer,
    boolean,
    byte_size,
    decimal,
    integer,
    pair,
)
from penstock.metrics.measurement import Quantile
from penstock.settings import Feature, RateLimitResource, Restriction
from penstock.system.model_variables import passed_on

OPENAI_GROUPS = (
    Feature.INFERENCE,
    Feature.MODEL_REPOSITORY,
    Feature.HEALTH,
    Feature.METRICS,
    Feature.REQUEST_CONTROL,
)
"""Groups of the calls of OpenAI's API."""

KSERVE_GROUPS = tuple(feature for feature in Feature if feature is not Feature.METRICS)
"""Groups of the calls of KServe, of which metrics are none: they have a port of their own."""

Setting = tuple[str, str, str]
"""Name (of a backend, a cache, a policy), key and value."""


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


def memory_budget(value: str) -> dict[str, int | float]:
    """Bytes or a share by device; the plain form, which is bytes, by the device of no name."""
    if "=" not in value:
        return {"": byte_size(value)}
    budget: dict[str, int | float] = {}
    for part in value.split(","):
        named, _, size = part.partition("=")
        device = re.fullmatch(r"host|gpu(?::([0-9]{1,4}))?", named)
        if device is None:
            raise ValueRefused(
                f"a memory budget is of 'host', of 'gpu' (each of them) or of 'gpu:<number>', not"
                f" of '{named}'"
            )
        key = named if device[1] is None else f"gpu{int(device[1])}"
        if key in budget:
            raise ValueRefused(f"the memory budget of '{named}' is given twice")
        budget[key] = _share(size) or byte_size(size)
    return budget


def _share(value: str) -> float | None:
    """A fraction such as 0.9; `None` for what is no number with a point."""
    if not re.fullmatch(r"[0-9]*\.[0-9]+", value):
        return None
    share = float(value)
    if not 0 < share <= 1:
        raise ValueRefused(f"a share of memory is above 0.0 and at most 1.0. Got {value}")
    return share


def host_policy(value: str) -> Setting:
    format_ = "--host-policy option format is '<policy name>,<setting>=<value>'"
    setting = named_setting(value, format_)
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
    return named_setting(
        value, "--backend-config option format is '<backend name>,<setting>=<value>'"
    )


def cache_config(value: str) -> Setting:
    if value.find(",") < 1:
        raise ValueRefused(
            "No cache specified. --cache-config option format is <cache name>,"
            f"<setting>=<value>. Got {value}"
        )
    return named_setting(value, "--cache-config option format is '<cache name>,<setting>=<value>'")


def cache_size(value: str) -> Setting:
    return "local", "size", str(big_integer(value))


def quantiles(value: str) -> tuple[Quantile, ...]:
    """`<quantile>:<error>[,<quantile>:<error>]`"""
    found = tuple(Quantile(*pair(decimal, decimal)(one)) for one in value.split(","))
    for one in found:
        if not 0 <= one.quantile <= 1:
            raise ValueRefused(f"a quantile is in range [0.0, 1.0], got {one.quantile:g}")
    return found


METRICS_SETTINGS: dict[str, Parser] = {
    "counter_latencies": boolean,
    "histogram_latencies": boolean,
    "summary_latencies": boolean,
    "summary_quantiles": quantiles,
    "llm,vllm_names": boolean,
}
"""The settings of metrics; those of language models begin with `llm,`."""


def metrics_config(value: str) -> tuple[str, Any]:
    key, _, setting = value.partition("=")
    name = key.removeprefix("llm,")
    if not name or not setting or "," in name:
        raise ValueRefused(f"--metrics-config option format is <setting>=<value>. Got {value}")
    if key not in METRICS_SETTINGS:
        raise ValueRefused(f"unknown setting of metrics '{key}'", f"metrics-config {key}")
    try:
        return name, METRICS_SETTINGS[key](setting)
    except ValueRefused as refused:
        raise ValueRefused(str(refused), f"metrics-config {key}") from None


def rate_limit_resource(value: str) -> RateLimitResource:
    name, *numbers = value.split(":")
    if not 1 <= len(numbers) <= 2:
        raise ValueRefused(
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
            f"'<resource_name>:<count>'. Got {value}"
        )
    return RateLimitResource(name, *map(integer, numbers))


def openai_alias(value: str) -> tuple[str, str]:
    """`<alias>=<model>`."""
    alias, _, model = value.partition("=")
    if not alias or not model:
        raise ValueRefused(f"--openai-alias option format is '<alias>=<model>'. Got {value}")
    return alias, model


def origin(value: str) -> str:
    """The origin of web pages, as browsers write it, or `*`."""
    if value != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", value):
        raise ValueRefused(f"an origin is like http://localhost:3000, without a path. Got {value}")
    return value


def restriction(name: str, kind: str, groups: Collection[Feature]) -> Parser:
    """`<feature>[,<feature>]:<key>=<value>`; `kind` is the frontend's own name of a feature.

    Only features of these `groups` have any calls there. For the value see `secret`.
    """

    def feature(word: str) -> Feature:
        if word not in groups:
            known = "" if groups is KSERVE_GROUPS else f"; groups are {', '.join(groups)}"
            raise ValueRefused(f"unknown restricted {kind} '{word}' {known}")
        return Feature(word)

    def parse(value: str) -> Restriction:
        match = re.fullmatch(r"([^:]+):([^=]+)=(.+)", value)
        if not match:
            raise ValueRefused(
                f"--{name} option format is '<config name>:<setting>=<value>'. Got {value}"
            )
        features = [feature(word) for word in match[1].split(",")]
        refuse_repeated(features, kind)
        return Restriction(frozenset(features), match[2], secret(match[3]))

    return parse


def secret(value: str) -> str:
    """The text itself, that of a file for `@<path>`, or an environment variable for `$<name>`.

    So secrets need not stand on the command line, which every process of the machine can read. `@@`
    and `$$` stand for a first character that is meant.
    """
    if value[:2] in ("@@", "$$"):
        return value[1:]
    if value[0] == "$":
        return _variable(value[1:])
    return _contents(value[1:]) if value[0] == "@" else value


def _variable(name: str) -> str:
    if passed_on({name: ""}):
        raise _unreadable(
            f"environment variable '{name}' is one that model processes get, too; choose another"
            " name"
        )
    found = os.environ.get(name)
    if not found:
        raise _unreadable(f"environment variable '{name}' is not set, or empty")
    return found


def _contents(path: str) -> str:
    """The text of a file without the end of its line."""
    try:
        text = Path(path).read_text().rstrip("\r\n")
    except OSError as error:
        raise _unreadable(f"file '{path}' cannot be opened: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _unreadable(f"file '{path}' is not text") from error
    if not text:
        raise _unreadable(f"file '{path}' is empty")
    return text


def _unreadable(problem: str) -> ValueRefused:
    return ValueRefused(f"the secret cannot be read: {problem}")


def refuse_repeated(features: list[Feature], kind: str) -> None:
    for position, feature in enumerate(features):
        if feature in features[:position]:
            raise ValueRefused(
                f"restricted {kind} '{feature}' can not be specified in multiple config groups"
            )


def named_setting(value: str, format_: str) -> Setting:
    """`<name>,<key>=<value>`, or without a name `<key>=<value>`."""
    head, comma, tail = value.partition(",")
    if not comma:
        head, tail = "", value
    key, _, setting = tail.partition("=")
    if not key or not setting:
        raise ValueRefused(f"{format_}. Got {value}")
    return head, key, setting

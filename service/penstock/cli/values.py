"""Parsers of option values: from text to a value, or a `ValueRefused` with the reason."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from penstock.models.sizing.sizes import parsed_size

E = TypeVar("E", bound=StrEnum)

Parser = Callable[[str], Any]

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_PORTS = range(2**16)


class ValueRefused(Exception):  # noqa: N818
    """An invalid option value; `option` names the part at fault if it is not the whole option."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


def text(value: str) -> str:
    return value


def given(_: str) -> bool:
    """The value of an option that has none."""
    return True


def variable_names(value: str) -> tuple[str, ...]:
    """Names of environment variables, or their beginnings with `*`."""
    names = tuple(value.split(","))
    for name in names:
        if not re.fullmatch(r"\*|[A-Za-z_][A-Za-z0-9_]*\*?", name):
            raise ValueRefused(f"'{name}' is no name of an environment variable, nor <beginning>*")
    return names


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


def byte_size(value: str) -> int:
    """Bytes, or a number with a unit such as 48GiB."""
    size = parsed_size(value)
    if size is None:
        raise ValueRefused(f"a size is a number of bytes, or like 48GiB or 80GB. Got {value}")
    return size


def port(value: str) -> int:
    """0 lets the system choose."""
    return integer(value, _PORTS)


def decimal(value: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", value, re.IGNORECASE):
        raise ValueRefused(f"Invalid option value. Got {value}")
    return float(value)


def interval(value: str) -> float:
    """A time that is not negative."""
    number = decimal(value)
    if number < 0:
        raise ValueRefused(f"a time cannot be negative. Got {value}")
    return number


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


def at_least(name: str, least: int) -> Parser:
    """A number from `least` up to what 32 bits hold."""

    def parse(value: str) -> int:
        number = integer(value)
        if number < least:
            raise ValueRefused(f"invalid argument for --{name}. Must be {least} or more.")
        return number

    return parse


def not_negative(name: str, read: Parser = integer) -> Parser:
    """A number, or 0 for none; `read` bounds it to 32 bits, or 64."""

    def parse(value: str) -> int:
        number: int = read(value)
        if number < 0:
            raise ValueRefused(f"invalid argument for --{name}. Must be 0 or more.")
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


def access_log(value: str) -> str:
    if not value:
        raise ValueRefused("the access log is not a file: name one, or - or off")
    return value


def audit_log(value: str) -> str:
    if not value:
        raise ValueRefused("the audit log is not a file: name one, or - or off")
    return value


def one_of(name: str, *choices: str, fold: bool = True) -> Parser:
    """One of a few words; case is ignored if `fold` is set."""

    def parse(value: str) -> str:
        word = value.lower() if fold else value
        if word not in choices:
            raise ValueRefused(f"invalid argument for --{name}")
        return word

    return parse


def one_of_with_name(name: str, *choices: str) -> Parser:
    """One of a few words, and perhaps a colon and a name behind it."""

    def parse(value: str) -> str:
        word, colon, named = value.partition(":")
        if word not in choices or (colon and not named):
            raise ValueRefused(f"invalid argument for --{name}")
        return value

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

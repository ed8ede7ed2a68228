"""The file of an access policy: TOML, read into an `AccessPolicy`. Names what it refuses."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.access.certificate_names import parse_certificate_name
from penstock.access.globs import Glob, any_fits
from penstock.access.policy import AccessPolicy, Rule
from penstock.access.token_settings import token_settings
from penstock.core.errors import ConfigError
from penstock.core.nearest_name import suggestion
from penstock.settings import Feature
from penstock.system.file_state import check_file

T = TypeVar("T")

ANYONE: Final = "anyone"
KEY_HASH: Final = "sha256:"
MOST_KEYS: Final = 2
"""Of a name: a new one is given out before the old one is revoked."""

_GROUP: Final = "group:"
_LONGEST_NAME: Final = 128
_EVERYTHING: Final = (Glob("*"),)


@dataclass(slots=True)
class _Known:
    """The callers of a file: names by hashes of keys and by certificates, and groups by name."""

    keys: dict[str, str] = field(default_factory=dict)
    certificates: dict[str, str] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_policy(path: Path, *, again: bool = False) -> AccessPolicy:
    """The policy in a file; raises `ConfigError` that names the file and the field.

    What is read `again` must be a file.
    """
    try:
        if again:
            check_file(path)
        return parse_policy(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the access policy '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the access policy '{path}' is not UTF-8: {error.reason}") from error
    except ConfigError as error:
        raise ConfigError(f"the access policy '{path}': {error}") from error


def parse_policy(text: str) -> AccessPolicy:
    """The policy in a text; raises `ConfigError` that names the field."""
    given = _parsed(text)
    _refuse_unknown(given, ("callers", "rules", "tokens"), "")
    tokens = token_settings(_table(given["tokens"], "'tokens'")) if "tokens" in given else None
    known = _callers(_table(given.get("callers", {}), "'callers'"))
    rules = given.get("rules", [])
    if not isinstance(rules, list) or not rules:
        raise ConfigError("it has no 'rules', so that nobody could do anything")
    # Tokens name callers that no file knows.
    strict = known if tokens is None else None
    found = [_rule(each, f"rules[{at}]", strict) for at, each in enumerate(rules)]
    return AccessPolicy(known.keys, known.groups, found, tokens, known.certificates)


def callers_of(text: str) -> dict[str, list[str]]:
    """The hashes of keys by callers, of a file that need not have rules yet."""
    known = _callers(_table(_parsed(text).get("callers", {}), "'callers'"))
    found: dict[str, list[str]] = {name: [] for name in known.groups}
    for hashed, name in known.keys.items():
        found[name].append(hashed)
    return found


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers that Python does not read
        raise ConfigError(f"it is not TOML: {error}") from error


def check_name(name: str) -> None:
    """Raises `ConfigError` for a name that no caller may have."""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"a name must have 1 to {_LONGEST_NAME} printable characters")
    if name == ANYONE or name.startswith(_GROUP):
        raise ConfigError(f"'{name}' is no name: '{ANYONE}' and '{_GROUP}' mean something in rules")
    Glob(name)
    if "*" in name:
        raise ConfigError(f"'{name}' is no name: '*' is for rules")


def _callers(given: Mapping[str, Any]) -> _Known:
    known = _Known()
    for name, value in given.items():
        check_name(name)
        where = f"callers.{name}"
        table = _table(value, f"'{where}'")
        _refuse_unknown(table, ("keys", "certificates", "groups"), f"{where}.")
        hashes = _texts(table.get("keys", []), f"{where}.keys")
        if len(hashes) > MOST_KEYS:
            raise ConfigError(f"'{where}.keys' has {len(hashes)} keys; {MOST_KEYS} are the most")
        for text in hashes:
            hashed = _hash(text, f"{where}.keys")
            if hashed in known.keys:
                raise ConfigError(f"'{where}.keys' has a key of '{known.keys[hashed]}'")
            known.keys[hashed] = name
        for text in _texts(table.get("certificates", []), f"{where}.certificates"):
            shown = _checked(parse_certificate_name, text, f"{where}.certificates")
            if known.certificates.setdefault(shown, name) != name:
                other = known.certificates[shown]
                raise ConfigError(f"'{where}.certificates' has '{text}', which is of '{other}'")
        known.groups[name] = tuple(_texts(table.get("groups", []), f"{where}.groups"))
    return known


def _hash(text: str, where: str) -> str:
    """The hash of a key; the text is not repeated, since it may be the key itself."""
    hashed = text.removeprefix(KEY_HASH).lower()
    if len(hashed) != 64 or set(hashed) - set("0123456789abcdef"):
        raise ConfigError(
            f"'{where}' must hold '{KEY_HASH}' and 64 hexadecimal digits, as"
            " 'penstock keys new' writes them: never a key itself"
        )
    return hashed


def _rule(given: Any, where: str, known: _Known | None) -> Rule:
    table = _table(given, f"'{where}'")
    _refuse_unknown(table, ("callers", "calls", "models"), f"{where}.")
    who = _texts(table.get("callers", []), f"{where}.callers")
    if not who:
        raise ConfigError(
            f"'{where}.callers' must name who the rule is for; '{ANYONE}' is everyone"
        )
    names = [_glob(each, f"{where}.callers") for each in who if _is_name(each)]
    groups = [
        _glob(each.removeprefix(_GROUP), f"{where}.callers")
        for each in who
        if each.startswith(_GROUP)
    ]
    if known is not None:
        in_groups = {group for each in known.groups.values() for group in each}
        _refuse_strangers(names, known.groups, "caller", where)
        _refuse_strangers(groups, in_groups, "group", where)
    models: tuple[Glob, ...] = _EVERYTHING
    if "models" in table:
        patterns = _texts(table["models"], f"{where}.models")
        models = tuple(_glob(each, f"{where}.models") for each in patterns)
        if not models:
            raise ConfigError(f"'{where}.models' is empty; leave it out for all models")
    return Rule(names, groups, ANYONE in who, _calls(table.get("calls", []), where), models)


def _is_name(text: str) -> bool:
    return text != ANYONE and not text.startswith(_GROUP)


def _refuse_strangers(globs: Iterable[Glob], known: Collection[str], what: str, where: str) -> None:
    """A rule for nobody is a slip of the pen."""
    for glob in globs:
        if not (glob.text in known if glob.is_literal else _any_in(glob, known)):
            raise ConfigError(
                f"'{where}.callers' has '{glob.text}', which no {what} of the file is called"
                f"{suggestion(glob.text[:_LONGEST_NAME], list(known)[:1000])}"
            )


def _any_in(glob: Glob, known: Iterable[str]) -> bool:
    """Whether a pattern fits one of the names."""
    return any(any_fits((glob,), name) for name in known)


def _calls(given: Any, where: str) -> frozenset[Feature]:
    names = _texts(given, f"{where}.calls")
    if not names:
        raise ConfigError(f"'{where}.calls' must name groups of calls; '*' is all of them")
    if "*" in names:
        return frozenset(Feature)
    known = [feature.value for feature in Feature]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"'{where}.calls' has '{name[:_LONGEST_NAME]}', which is no group of calls"
                f"{suggestion(name[:_LONGEST_NAME], known)}; there are: {', '.join(known)}"
            )
    return frozenset(map(Feature, names))


def _glob(text: str, where: str) -> Glob:
    return _checked(Glob, text, where)


def _checked(parse: Callable[[str], T], text: str, where: str) -> T:
    """What is made of a text; raises `ConfigError` that names the field."""
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"'{where}': {error}") from error


def _texts(given: Any, where: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ConfigError(f"'{where}' must be a list of strings")
    return given


def _table(given: Any, what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{what} must be a table")
    return given


def _refuse_unknown(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"unknown key '{where}{name}'{suggestion(name, known)}")
